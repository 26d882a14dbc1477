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
  # Chunks are cut along S and keep B, so that a batch sharded over devices
  # stays where it is; a chunk across rows would be gathered.
  chunk = min(max(1, chunk_tokens // B), S)
  padding = -S % chunk
  hidden_SBD = jnp.pad(hidden, ((0, 0), (0, padding), (0, 0))).swapaxes(0, 1)
  targets_SB = jnp.pad(targets, ((0, 0), (0, padding))).swapaxes(0, 1)

  @jax.checkpoint
  def score(
    hidden_CBD: jax.Array, targets_CB: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    logits_CBV = jnp.matmul(
      hidden_CBD,
      unembedding.astype(hidden_CBD.dtype),
      preferred_element_type=jnp.float32,
    )
    logprobs_CBV = jax.nn.log_softmax(logits_CBV / temperature, axis=-1)
    chosen_CB1 = jnp.take_along_axis(logprobs_CBV, targets_CB[..., None], -1)
    entropy_CB = -jnp.sum(jnp.exp(logprobs_CBV) * logprobs_CBV, axis=-1)
    return chosen_CB1[..., 0], entropy_CB

  logprobs, entropy = jax.lax.map(
    lambda chunk: score(*chunk),
    (
      hidden_SBD.reshape(-1, chunk, B, D),
      targets_SB.reshape(-1, chunk, B),
    ),
  )

  def unchunk(x: jax.Array) -> jax.Array:
    return x.reshape(-1, B)[:S].swapaxes(0, 1)

  return unchunk(logprobs), unchunk(entropy)
