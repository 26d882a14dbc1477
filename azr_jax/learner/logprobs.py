"""Log-probabilities and entropies of targets, without a [B, S, V] array.

Logits exist for one chunk of tokens at a time; the backward pass computes
them again instead of keeping them. On a mesh each device scores its own rows
against its own part of the vocabulary: the head is gathered once and its
gradient summed once, not once per chunk.
"""

import functools
from collections.abc import Callable
from typing import Any

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
  return _on_mesh(
    functools.partial(
      _score_rows, temperature=temperature, chunk_tokens=chunk_tokens
    ),
    (hidden, targets),
    (unembedding.astype(hidden.dtype),),
    mesh,
  )


def chunked_kl(
  hidden: Float[Array, "B S D"],
  unembedding: Float[Array, "D V"],
  ref_hidden: Float[Array, "B S D"],
  ref_unembedding: Float[Array, "D V"],
  *,
  temperature: float,
  chunk_tokens: int,
  mesh: Mesh | None = None,
) -> Float[Array, "B S"]:
  """KL(policy || reference) over the whole vocabulary, in nats.

  Arguments as for `chunked_logprobs`; both models have the same shape.
  """
  return _on_mesh(
    functools.partial(
      _diverge_rows, temperature=temperature, chunk_tokens=chunk_tokens
    ),
    (hidden, ref_hidden),
    (
      unembedding.astype(hidden.dtype),
      ref_unembedding.astype(ref_hidden.dtype),
    ),
    mesh,
  )


def _on_mesh(
  function: Callable[..., Any],
  rows: tuple[jax.Array, ...],
  heads: tuple[jax.Array, ...],
  mesh: Mesh | None,
) -> Any:
  """Runs `function(*rows, *heads, vocab_axis=...)` on each device's part."""
  if mesh is None:
    return function(*rows, *heads, vocab_axis=None)
  parts = mesh.shape["tensor"]
  divides = parts > 1 and heads[0].shape[1] % parts == 0
  vocab_axis = "tensor" if divides else None
  by_row = PartitionSpec(mesh_lib.BATCH_AXES)
  sharded = jax.shard_map(
    functools.partial(function, vocab_axis=vocab_axis),
    mesh=mesh,
    in_specs=(
      *[by_row] * len(rows),
      *[PartitionSpec(None, vocab_axis)] * len(heads),
    ),
    out_specs=by_row,
    # Checked, the head's gradient would be summed over devices in each chunk.
    check_vma=False,
  )
  return sharded(*rows, *heads)


def _score_rows(
  hidden: Float[Array, "B S D"],
  targets: Int[Array, "B S"],
  head: Float[Array, "D V"],
  *,
  temperature: float,
  chunk_tokens: int,
  vocab_axis: str | None,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """One device's rows; its V tokens are a part if there is a vocab axis."""
  # The chunks' gradients of the head are summed up in the type it has here.
  head = head.astype(jnp.float32)
  first = 0
  if vocab_axis is not None:
    first = jax.lax.axis_index(vocab_axis) * head.shape[1]

  def score(
    hidden_CBD: jax.Array, targets_CB: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    logits_CBV = _logits(hidden_CBD, head, temperature)
    weights_CBV, sum_CB, normalizer_CB = _softmax(logits_CBV, vocab_axis)
    place_CB = targets_CB - first
    here_CB = (place_CB >= 0) & (place_CB < logits_CBV.shape[-1])
    place_CB = jnp.where(here_CB, place_CB, 0)
    chosen_CB = jnp.take_along_axis(logits_CBV, place_CB[..., None], -1)[..., 0]
    chosen_CB = _total(jnp.where(here_CB, chosen_CB, 0.0), vocab_axis)
    mean_CB = _total(jnp.sum(weights_CBV * logits_CBV, axis=-1), vocab_axis)
    return chosen_CB - normalizer_CB, normalizer_CB - mean_CB / sum_CB

  return _over_chunks(score, (hidden, targets), chunk_tokens)


def _diverge_rows(
  hidden: Float[Array, "B S D"],
  ref_hidden: Float[Array, "B S D"],
  head: Float[Array, "D V"],
  ref_head: Float[Array, "D V"],
  *,
  temperature: float,
  chunk_tokens: int,
  vocab_axis: str | None,
) -> Float[Array, "B S"]:
  """One device's rows, as `_score_rows`."""
  head, ref_head = head.astype(jnp.float32), ref_head.astype(jnp.float32)

  def diverge(hidden_CBD: jax.Array, ref_hidden_CBD: jax.Array) -> jax.Array:
    logits_CBV = _logits(hidden_CBD, head, temperature)
    ref_logits_CBV = _logits(ref_hidden_CBD, ref_head, temperature)
    weights_CBV, sum_CB, normalizer_CB = _softmax(logits_CBV, vocab_axis)
    _, _, ref_normalizer_CB = _softmax(ref_logits_CBV, vocab_axis)
    gap_CB = jnp.sum(weights_CBV * (logits_CBV - ref_logits_CBV), axis=-1)
    mean_gap_CB = _total(gap_CB, vocab_axis) / sum_CB
    return mean_gap_CB - normalizer_CB + ref_normalizer_CB

  return _over_chunks(diverge, (hidden, ref_hidden), chunk_tokens)


def _logits(
  hidden: jax.Array, head: Float[Array, "D V"], temperature: float
) -> jax.Array:
  logits = jnp.matmul(
    hidden, head.astype(hidden.dtype), preferred_element_type=jnp.float32
  )
  return logits / temperature


def _total(x: jax.Array, vocab_axis: str | None) -> jax.Array:
  return x if vocab_axis is None else jax.lax.psum(x, vocab_axis)


def _softmax(
  logits: jax.Array, vocab_axis: str | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Weights of this part, their sum over all parts, and log-normalizers."""
  maximum = jnp.max(jax.lax.stop_gradient(logits), axis=-1)
  if vocab_axis is not None:
    maximum = jax.lax.pmax(maximum, vocab_axis)
  weights = jnp.exp(logits - maximum[..., None])
  total = _total(jnp.sum(weights, axis=-1), vocab_axis)
  return weights, total, maximum + jnp.log(total)


def _over_chunks(
  function: Callable[..., Any],
  arrays: tuple[jax.Array, ...],
  chunk_tokens: int,
) -> Any:
  """Maps a function of [chunk, B, ...] over [B, S, ...]; gives [B, S]."""
  B, S = arrays[0].shape[:2]
  chunk = min(max(1, chunk_tokens // B), S)

  def to_chunks(x: jax.Array) -> jax.Array:
    padding = [(0, 0), (0, -S % chunk), *[(0, 0)] * (x.ndim - 2)]
    return (
      jnp.pad(x, padding).swapaxes(0, 1).reshape(-1, chunk, B, *x.shape[2:])
    )

  def from_chunks(x: jax.Array) -> jax.Array:
    return x.reshape(-1, B)[:S].swapaxes(0, 1)

  checkpointed = jax.checkpoint(function)
  results = jax.lax.map(
    lambda parts: checkpointed(*parts), tuple(map(to_chunks, arrays))
  )
  return jax.tree.map(from_chunks, results)
