"""Flash attention of NVIDIA's cuDNN: packed on Hopper and later, else masked.

How packed attention runs:
1. `spans.py` derives the lengths and starts of a row's sequences from its
   segment ids;
2. cuDNN gets the lengths and starts of all rows of a device as one list, and
   runs causal attention within each sequence (`cudnn_calls.py`);
3. it does not write the outputs of padding, so this module sets them to zero.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Float32, Int

from azr_jax.models import cudnn_calls, splash
from azr_jax.models.spans import Spans, has_spans, sequence_spans
from azr_jax.parallel import mesh as mesh_lib

# The first compute capability with packed attention: Hopper.
_PACKED_CAPABILITY = 9.0
# The largest head size for which packed training works on all of these GPUs.
_PACKED_HEAD_SIZE = 128
# Rows and heads have a multiple of this many tokens or channels.
_MULTIPLE = 8
# Arrays must be smaller, because cuDNN's offsets count elements in int32.
_MAX_ELEMENTS = 2**31


@dataclasses.dataclass(frozen=True)
class Kernels:
  """cuDNN's forward and backward kernels; tests replace them.

  Attributes:
    forward: (q, k, v, spans) -> outputs and log-normalizers of the softmax.
    backward: (q, k, v, outputs, log-normalizers, gradient of the outputs,
      spans) -> the gradients of q, k and v.
  """

  forward: Callable[
    ..., tuple[Float[Array, "B S H E"], Float32[Array, "sequences H S"]]
  ] = cudnn_calls.forward
  backward: Callable[
    ...,
    tuple[
      Float[Array, "B S H E"], Float[Array, "B S K E"], Float[Array, "B S K E"]
    ],
  ] = cudnn_calls.backward


def make_attention(
  mesh: Mesh, max_sequences_per_row: int, kernels: Kernels | None = None
) -> Callable[..., Float[Array, "B S H E"]]:
  """Returns cuDNN's attention; the packed form never holds an [S, S] array.

  Layers with a sliding window or sinks have the masked form.

  A row whose segments do not ascend, or that has too many sequences, gives NaN
  instead of a wrong result.

  Args:
    mesh: the mesh, with rows sharded over its batch axes, and heads over
      `tensor` if that divides the key heads. Its devices decide between the
      packed and the masked form.
    max_sequences_per_row: maximum sequences per row. The backward pass reserves
      memory for each.
    kernels: the kernels to call. None calls cuDNN's.

  Returns:
    An `attention.AttentionFn` for half precision.
  """
  packs = kernels is not None or _packs(mesh.devices.flat[0])

  @jax.named_scope("attend")
  def attend(
    q: Float[Array, "B S H E"],
    k: Float[Array, "B S K E"],
    v: Float[Array, "B S K E"],
    segment_ids: Int[Array, "B S"],
    window: int = 0,
    sinks: Float[Array, " H"] | None = None,
  ) -> Float[Array, "B S H E"]:
    tensor = mesh.shape["tensor"]
    heads = "tensor" if k.shape[2] % tensor == 0 else None
    by_head = PartitionSpec(mesh_lib.BATCH_AXES, None, heads)
    is_plain = not window and sinks is None
    if packs and is_plain and q.shape[3] <= _PACKED_HEAD_SIZE:
      on_shard = functools.partial(
        _attend_packed,
        # XLA reads 1 as "not packed".
        max_sequences_per_row=max(2, max_sequences_per_row),
        kernels=kernels or Kernels(),
      )
    else:
      on_shard = functools.partial(_attend_masked, window=window)
    return jax.shard_map(
      on_shard,
      mesh=mesh,
      in_specs=(
        *(by_head, by_head, by_head),
        *(PartitionSpec(mesh_lib.BATCH_AXES), PartitionSpec(heads)),
      ),
      out_specs=by_head,
      # The kernel does not declare over which axes its results vary.
      check_vma=False,
    )(q, k, v, segment_ids, sinks)

  return attend


def _packs(device: jax.Device) -> bool:
  """Returns whether a device supports packed attention."""
  return float(getattr(device, "compute_capability", 0)) >= _PACKED_CAPABILITY


def _attend_masked(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  segment_ids: Int[Array, "B S"],
  sinks: Float[Array, " H"] | None,
  window: int,
) -> Float[Array, "B S H E"]:
  """Attends with a mask [S, S] per row, which cuDNN adds to the scores."""
  S, E = q.shape[1], q.shape[3]
  q, k, v, segments = _padded(q, k, v, segment_ids)
  mask = jnp.tril(segments[:, :, None] == segments[:, None, :])[:, None]
  if window:
    mask = jnp.triu(mask, 1 - window)
  if sinks is not None:
    q, k, v, mask = _with_sink_key(q, k, v, mask, sinks)
  return jax.nn.dot_product_attention(
    q, k, v, mask=mask, scale=E**-0.5, implementation="cudnn"
  )[:, :S, :, :E]


def _with_sink_key(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  mask: Bool[Array, "B 1 S S"],
  sinks: Float[Array, " H"],
) -> tuple[
  Float[Array, "B S H wide"],
  Float[Array, "B T K wide"],
  Float[Array, "B T K wide"],
  Bool[Array, "B 1 S T"],
]:
  """Adds a key that all queries see, and a channel in which it scores the sink.

  The first of the added keys and channels count; cuDNN wants multiples.
  """
  S, E = q.shape[1], q.shape[3]
  scores = (sinks.astype(jnp.float32) * E**0.5).astype(q.dtype)
  of_head = jnp.pad(scores[:, None], ((0, 0), (0, _MULTIPLE - 1)))
  added = jnp.broadcast_to(of_head, (*q.shape[:3], _MULTIPLE))
  widths = ((0, 0), (0, _MULTIPLE), (0, 0), (0, _MULTIPLE))
  k, v = jnp.pad(k, widths), jnp.pad(v, widths)
  mask = jnp.pad(mask, ((0, 0), (0, 0), (0, 0), (0, _MULTIPLE)))
  return (
    jnp.concatenate([q, added], axis=-1),
    k.at[:, S, :, E].set(1),
    v,
    mask.at[..., S].set(True),
  )


def _attend_packed(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  segment_ids: Int[Array, "B S"],
  sinks: Float[Array, " H"] | None,
  max_sequences_per_row: int,
  kernels: Kernels,
) -> Float[Array, "B S H E"]:
  """Attends within each sequence of one device's rows."""
  assert sinks is None
  if q.size >= _MAX_ELEMENTS:
    raise ValueError(
      f"{q.shape[0]} rows a device of {q.shape[1]} tokens x {q.shape[2]} heads "
      f"x {q.shape[3]}: expected fewer than 2^31 numbers; lower "
      "learner.micro_rows or raise mesh.tensor"
    )
  S = q.shape[1]
  q, k, v, segments = _padded(q, k, v, segment_ids)
  live = (segments > 0)[:, :, None, None]
  attend = _differentiable(kernels)
  out = attend(q, k, v, live, sequence_spans(segments, max_sequences_per_row))
  is_told = has_spans(segments, max_sequences_per_row)[:, None, None, None]
  return jnp.where(is_told, out, jnp.nan)[:, :S]


def _padded(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  segment_ids: Int[Array, "B S"],
) -> tuple[
  Float[Array, "B padded H E"],
  Float[Array, "B padded K E"],
  Float[Array, "B padded K E"],
  Int[Array, "B padded"],
]:
  """Pads rows with tokens of segment 0, to a length that cuDNN accepts."""
  pad = (0, -q.shape[1] % _MULTIPLE)
  q, k, v = (jnp.pad(x, ((0, 0), pad, (0, 0), (0, 0))) for x in (q, k, v))
  return q, k, v, jnp.pad(segment_ids, ((0, 0), pad))


def _differentiable(
  kernels: Kernels,
) -> Callable[..., Float[Array, "B S H E"]]:
  """Returns the function (q, k, v, live, spans) -> outputs, 0 if not live."""

  @jax.custom_vjp
  def attend(
    q: jax.Array, k: jax.Array, v: jax.Array, live: jax.Array, spans: Spans
  ) -> jax.Array:
    return jnp.where(live, kernels.forward(q, k, v, spans)[0], 0)

  def forward(
    q: jax.Array, k: jax.Array, v: jax.Array, live: jax.Array, spans: Spans
  ) -> tuple[jax.Array, tuple[Any, ...]]:
    out, sums = kernels.forward(q, k, v, spans)
    out = jax.ad_checkpoint.checkpoint_name(
      jnp.where(live, out, 0), splash.RESIDUALS
    )
    sums = jax.ad_checkpoint.checkpoint_name(sums, splash.RESIDUALS)
    return out, (q, k, v, live, spans, out, sums)

  def backward(
    kept: tuple[Any, ...], grad: jax.Array
  ) -> tuple[jax.Array | None, ...]:
    q, k, v, live, spans, out, sums = kept
    grads = kernels.backward(q, k, v, out, sums, grad, spans)
    dq, dk, dv = (jnp.where(live, x, 0) for x in grads)
    return dq, dk, dv, None, None

  attend.defvjp(forward, backward)
  return attend
