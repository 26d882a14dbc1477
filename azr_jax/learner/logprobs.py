"""Log-probabilities and entropies of targets, without a [B, S, V] array.

Logits exist for one chunk of tokens at a time; the backward pass computes
them again instead of keeping them. On a mesh each device scores its own rows
against its own part of the vocabulary: the head is gathered once and its
gradient summed once, not once per chunk.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from azr_jax.parallel import mesh as mesh_lib


def chunked_logprobs(
  hidden: Float[Array, "B S D"],
  unembedding: Float[Array, "D V"],
  targets: Int[Array, "B S"],
  *,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh | None = None,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """Scores each target under softmax(hidden @ unembedding / temperature).

  Args:
    hidden: final hidden states.
    unembedding: the output head.
    targets: the id to score at each position.
    temperature: the sampling temperature, so that learner and sampler agree.
    chunk_tokens: tokens of a device whose logits exist at the same time.
    mesh: rows lie over its batch axes, the vocabulary over `tensor` if that
      divides it; None: one device.

  Returns:
    log p(target) and the entropy of the distribution in nats, float32.
  """
  score = functools.partial(
    _score_rows, temperature=temperature, chunk_tokens=chunk_tokens
  )
  head = unembedding.astype(hidden.dtype)
  if mesh is None:
    return score(hidden, head, targets, vocab_axis=None)
  parts = mesh.shape["tensor"]
  divides = parts > 1 and unembedding.shape[1] % parts == 0
  vocab_axis = "tensor" if divides else None
  rows = PartitionSpec(mesh_lib.BATCH_AXES)
  score_shards = jax.shard_map(
    functools.partial(score, vocab_axis=vocab_axis),
    mesh=mesh,
    in_specs=(rows, PartitionSpec(None, vocab_axis), rows),
    out_specs=(rows, rows),
    # Checked, the head's gradient would be summed over devices in each chunk.
    check_vma=False,
  )
  return score_shards(hidden, head, targets)


def _score_rows(
  hidden: Float[Array, "B S D"],
  head: Float[Array, "D V"],
  targets: Int[Array, "B S"],
  *,
  temperature: float,
  chunk_tokens: int,
  vocab_axis: str | None,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """One device's rows; its V tokens are a part if there is a vocab axis."""
  B, S, D = hidden.shape
  chunk = min(max(1, chunk_tokens // B), S)
  padding = -S % chunk
  hidden_SBD = jnp.pad(hidden, ((0, 0), (0, padding), (0, 0))).swapaxes(0, 1)
  targets_SB = jnp.pad(targets, ((0, 0), (0, padding))).swapaxes(0, 1)
  # The chunks' gradients of the head are summed up in the type it has here.
  head = head.astype(jnp.float32)
  first = 0
  if vocab_axis is not None:
    first = jax.lax.axis_index(vocab_axis) * head.shape[1]

  def total(x: jax.Array) -> jax.Array:
    return x if vocab_axis is None else jax.lax.psum(x, vocab_axis)

  @jax.checkpoint
  def score(
    hidden_CBD: jax.Array, targets_CB: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    logits_CBV = jnp.matmul(
      hidden_CBD,
      head.astype(hidden_CBD.dtype),
      preferred_element_type=jnp.float32,
    )
    logits_CBV = logits_CBV / temperature
    maximum_CB = jnp.max(jax.lax.stop_gradient(logits_CBV), axis=-1)
    if vocab_axis is not None:
      maximum_CB = jax.lax.pmax(maximum_CB, vocab_axis)
    weights_CBV = jnp.exp(logits_CBV - maximum_CB[..., None])
    sum_CB = total(jnp.sum(weights_CBV, axis=-1))
    normalizer_CB = maximum_CB + jnp.log(sum_CB)
    place_CB = targets_CB - first
    here_CB = (place_CB >= 0) & (place_CB < logits_CBV.shape[-1])
    place_CB = jnp.where(here_CB, place_CB, 0)
    chosen_CB = jnp.take_along_axis(logits_CBV, place_CB[..., None], -1)[..., 0]
    chosen_CB = total(jnp.where(here_CB, chosen_CB, 0.0))
    mean_CB = total(jnp.sum(weights_CBV * logits_CBV, axis=-1)) / sum_CB
    return chosen_CB - normalizer_CB, normalizer_CB - mean_CB

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
