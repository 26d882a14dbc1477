"""Log-probabilities and entropies of targets, without a [B, S, V] array.

Logits exist for one chunk of tokens at a time; the backward pass computes
them again instead of keeping them.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def chunked_logprobs(
  hidden: Float[Array, "B S D"],
  unembedding: Float[Array, "D V"],
  targets: Int[Array, "B S"],
  *,
  temperature: float,
  chunk_tokens: int,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """Scores each target under softmax(hidden @ unembedding / temperature).

  Args:
    hidden: final hidden states.
    unembedding: the output head.
    targets: the id to score at each position.
    temperature: the sampling temperature, so that learner and sampler agree.
    chunk_tokens: tokens whose logits exist at the same time.

  Returns:
    log p(target) and the entropy of the distribution in nats, float32.
  """
  B, S, D = hidden.shape
  chunk = min(chunk_tokens, B * S)
  padding = -(B * S) % chunk
  hidden_ND = jnp.pad(hidden.reshape(-1, D), ((0, padding), (0, 0)))
  targets_N = jnp.pad(targets.reshape(-1), (0, padding))

  @jax.checkpoint
  def score(
    hidden_CD: jax.Array, targets_C: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    logits_CV = jnp.matmul(
      hidden_CD,
      unembedding.astype(hidden_CD.dtype),
      preferred_element_type=jnp.float32,
    )
    logprobs_CV = jax.nn.log_softmax(logits_CV / temperature, axis=-1)
    chosen_C = jnp.take_along_axis(logprobs_CV, targets_C[:, None], axis=-1)
    entropy_C = -jnp.sum(jnp.exp(logprobs_CV) * logprobs_CV, axis=-1)
    return chosen_C[:, 0], entropy_C

  logprobs, entropy = jax.lax.map(
    lambda chunk: score(*chunk),
    (hidden_ND.reshape(-1, chunk, D), targets_N.reshape(-1, chunk)),
  )

  def unchunk(x: jax.Array) -> jax.Array:
    return x.reshape(-1)[: B * S].reshape(B, S)

  return unchunk(logprobs), unchunk(entropy)
