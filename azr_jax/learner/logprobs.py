"""Log-probabilities and entropies of targets, without a [B, S, V] array."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from azr_jax.learner import chunks
from azr_jax.learner.chunks import Found, Heads, TokenRows


def chunked_logprobs(
  hidden: Float[Array, "B S D"],
  unembedding: Float[Array, "D V"],
  targets: Int[Array, "B S"],
  *,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh | None = None,
  mask: Float[Array, "B S"] | None = None,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """Scores each target under softmax(hidden @ unembedding / temperature).

  Args:
    hidden: final hidden states.
    unembedding: the output head.
    targets: the id to score at each position.
    temperature: the sampling temperature, so that learner and sampler agree.
    chunk_tokens: maximum tokens per device whose logits exist at a time.
    mesh: the mesh, with tokens sharded by `mesh.TOKENS` and the vocabulary over
      `tensor` if that divides it. None: one device.
    mask: 0 where no loss reads the results, which may then be 0. None scores
      all positions.

  Returns:
    log p(target), and the entropy of the distribution in nats, both float32.
  """
  return chunks.on_mesh(
    functools.partial(
      _score_rows, temperature=temperature, chunk_tokens=chunk_tokens
    ),
    mask,
    (hidden, targets),
    (unembedding.astype(hidden.dtype),),
    mesh,
  )


@jax.named_scope("logits")
def _score_rows(
  mask: Float[Array, "B S"] | None,
  rows: TokenRows,
  heads: Heads,
  vocab_axis: str | None,
  *,
  temperature: float,
  chunk_tokens: int,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """Scores one device's rows: hidden states and targets.

  With a vocab axis, the head is this device's part of the vocabulary.
  """

  def first_id(logits: jax.Array) -> jax.Array | int:
    if vocab_axis is None:
      return 0
    return jax.lax.axis_index(vocab_axis) * logits.shape[1]

  def score(rows: TokenRows, heads: Heads) -> Found:
    hidden, targets = rows
    logits = chunks.logits(hidden, heads[0], temperature)
    shifted, weights, total, normalizer = chunks.softmax(logits, vocab_axis)
    index = targets - first_id(logits)
    is_here = (index >= 0) & (index < logits.shape[1])
    index = jnp.where(is_here, index, 0)[:, None]
    chosen = jnp.take_along_axis(logits, index, axis=1)[:, 0]
    target = chunks.psum(jnp.where(is_here, chosen, 0.0), vocab_axis)
    mean = chunks.psum(jnp.sum(weights * shifted, axis=1), vocab_axis)
    entropy = jnp.log(total) - mean / total
    return target - normalizer, entropy, normalizer

  def slope(
    rows: TokenRows, heads: Heads, found: Found, grads: Found
  ) -> jax.Array:
    hidden, targets = rows
    _, entropy, normalizer = found
    grad, entropy_grad = grads
    logits = chunks.logits(hidden, heads[0], temperature)
    logps = logits - normalizer[:, None]
    # d log p(target) = [is target] - p, and dH = -p (log p + H).
    slopes = grad[:, None] + entropy_grad[:, None] * (logps + entropy[:, None])
    # XLA fuses a comparison with the rest. A scatter would be another pass.
    ids = jax.lax.broadcasted_iota(targets.dtype, logits.shape, 1)
    is_target = ids == (targets - first_id(logits))[:, None]
    chosen = jnp.where(is_target, grad[:, None], 0.0)
    return chosen - jnp.exp(logps) * slopes

  logprobs, entropy = chunks.over_chunks(
    score, slope, 2, mask, rows, heads, temperature, chunk_tokens, vocab_axis
  )
  return logprobs, entropy
