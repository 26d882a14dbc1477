"""Flash attention for TPUs: JAX's Pallas kernel "splash"."""

import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention
from jax.experimental.pallas.ops.tpu.splash_attention import (
  splash_attention_kernel,
  splash_attention_mask_info,
)
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from azr_jax.parallel import mesh as mesh_lib

# Number of queries or keys per block of the kernel.
_BLOCK_TOKENS = 512
# The last axis of a TPU register; lengths and head sizes are padded to it.
_LANES = 128
# Checkpoint name of the residuals that the backward kernels need from the
# forward kernel: its output and the normalizers of its softmax.
RESIDUALS = "attention"


def make_attention(
  mesh: Mesh, interpret: bool = False
) -> Callable[..., Float[Array, "B S H E"]]:
  """Returns Pallas's flash attention, which never materializes an [S, S] array.

  Key blocks that share no sequence with a query block are neither read nor
  computed, so a packed row costs no more than its sequences separately. If a
  row is split over several devices, each device has its own queries and gathers
  the keys and values, of which grouped-query attention has few.

  Args:
    mesh: the device mesh. Tokens are sharded by `mesh.TOKENS`, and heads over
      `tensor` if it divides the number of key heads.
    interpret: run the kernel in interpret mode on any device, for tests.

  Returns:
    An `attention.AttentionFn`.
  """

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
    by_head = PartitionSpec(*mesh_lib.TOKENS, heads)
    attend_shard = jax.shard_map(
      functools.partial(
        _attend_shard,
        context=mesh.shape["context"],
        interpret=interpret,
        window=window,
      ),
      mesh=mesh,
      in_specs=(
        by_head,
        by_head,
        by_head,
        PartitionSpec(mesh_lib.BATCH_AXES),
        PartitionSpec(heads),
      ),
      out_specs=by_head,
      # The kernel does not declare the mesh axes its results vary over.
      check_vma=False,
    )
    return attend_shard(q, k, v, segment_ids, sinks)

  return attend


def _attend_shard(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  segment_ids: Int[Array, "B T"],
  sinks: Float[Array, " H"] | None,
  context: int,
  interpret: bool,
  window: int,
) -> Float[Array, "B S H E"]:
  """Runs the kernel on the rows, heads and queries of one device.

  Args:
    q: this device's S of the T tokens of each row.
    k: keys of the same tokens.
    v: values of the same tokens.
    segment_ids: segments of whole rows.
    sinks: see `attention.AttentionFn`.
    context: number of devices that share a row, so T = S x context.
    interpret: see `make_attention`.
    window: see `attention.AttentionFn`.
  """
  S, H, E = q.shape[1:]
  offset = jnp.int32(0)
  if context > 1:
    offset = jax.lax.axis_index("context") * S
    k, v = (
      jax.lax.all_gather(x, "context", axis=1, tiled=True) for x in (k, v)
    )
  block = min(_BLOCK_TOKENS, S + -S % _LANES)

  def prepare(x: jax.Array) -> jax.Array:
    padding = (0, -x.shape[1] % block), (0, 0), (0, -E % _LANES)
    return jnp.swapaxes(jnp.pad(x, ((0, 0), *padding)), 1, 2)

  q, k, v = prepare(q * E**-0.5), prepare(k), prepare(v)
  queries, keys = q.shape[2], k.shape[2]
  causal = _causal_kernel(H, queries, keys, block, interpret)

  def attend_row(
    q: Float[Array, "H S E"],
    k: Float[Array, "K T E"],
    v: Float[Array, "K T E"],
    segments: Int[Array, " padded"],
  ) -> Float[Array, "H S E"]:
    own = jax.lax.dynamic_slice_in_dim(segments, offset, queries)
    seen = segments[:keys]
    live = live_blocks(own, seen, offset, block, window)
    kernel = _skipping(causal, live, offset + jnp.arange(queries), window)
    # The kernel returns a tuple only if residuals are requested.
    ids = splash_attention.SegmentIds(own, seen)
    return cast(jax.Array, kernel(q, k, v, ids, sinks))

  # Padding added here has segment 0, like a row's own padding, but comes later,
  # so the causal mask hides it.
  segments = jnp.pad(segment_ids, ((0, 0), (0, block)))
  out = jax.vmap(attend_row)(q, k, v, segments)
  return jnp.swapaxes(out, 1, 2)[:, :S, :, :E]


def _causal_kernel(
  heads: int, queries: int, keys: int, block: int, interpret: bool
) -> splash_attention_kernel.SplashAttentionKernel:
  """Returns the kernel of causal attention starting at the first token."""
  mask = splash_attention.CausalMask((queries, keys))
  # A fused backward kernel would write the queries' gradient once per key
  # block.
  return splash_attention.make_splash_mha(
    splash_attention.MultiHeadMask([mask] * heads),
    head_shards=1,
    q_seq_shards=1,
    block_sizes=splash_attention.BlockSizes(
      block_q=block,
      block_kv=block,
      block_q_dkv=block,
      block_kv_dkv=block,
      block_q_dq=block,
      block_kv_dq=block,
    ),
    residual_checkpoint_name=RESIDUALS,
    interpret=interpret,
  )


def live_blocks(
  own: Int[Array, " S"],
  seen: Int[Array, " T"],
  offset: Int[Array, ""] | int,
  block: int,
  window: int = 0,
) -> Bool[Array, "queries keys"]:
  """Returns whether a query block may see anything in a key block.

  Blocks are compared by their smallest and largest segment. Padding counts as
  the last segment, because it comes at the end of a row.

  Args:
    own: the segment of each query.
    seen: the segment of each key.
    offset: position of the first query.
    block: tokens per block; divides S and T.
    window: see `attention.AttentionFn`.
  """

  def bounds(segments: Int[Array, " tokens"]) -> tuple[jax.Array, jax.Array]:
    last = jnp.iinfo(segments.dtype).max
    by_block = jnp.where(segments > 0, segments, last).reshape(-1, block)
    return jnp.min(by_block, axis=1), jnp.max(by_block, axis=1)

  (own_low, own_high), (low, high) = bounds(own), bounds(seen)
  overlap = low[None, :] <= own_high[:, None]
  overlap &= own_low[:, None] <= high[None, :]
  ends = offset + block * (1 + jnp.arange(len(own_low)))
  starts = block * jnp.arange(len(low))[None, :]
  overlap &= starts < ends[:, None]
  if window:
    # The first query of a block sees least far ahead, and farthest back.
    overlap &= starts + block > ends[:, None] - block - window + 1
  return overlap


def _skipping(
  causal: splash_attention_kernel.SplashAttentionKernel,
  live: Bool[Array, "queries keys"],
  positions: Int[Array, " S"],
  window: int,
) -> splash_attention_kernel.SplashAttentionKernel:
  """Returns a causal kernel that runs only the live blocks.

  Args:
    causal: the kernel to restrict.
    live: the key blocks that each query block needs.
    positions: positions of the queries, which may start later than the keys.
    window: see `attention.AttentionFn`.
  """

  def replace(
    info: splash_attention_mask_info.MaskInfo | None,
    runs: jax.Array,
    fetches: jax.Array,
  ) -> splash_attention_mask_info.MaskInfo:
    assert info is not None
    return info._replace(
      block_mask=runs[None],
      data_next=fetches[None],
      q_sequence=cast(Any, positions.astype(jnp.int32)),
    )

  kwargs = dict(causal.kwargs)
  if window:
    kwargs["mask_function"] = functools.partial(_in_window, window)
  by_query = _fetch_schedule(live)
  # The kernel for the keys' gradients iterates over the queries of each key
  # block, but its arrays still have queries as the first axis.
  key_runs, key_fetches = (array.T for array in _fetch_schedule(live.T))
  return splash_attention_kernel.SplashAttentionKernel(
    replace(causal.fwd_mask_info, *by_query),
    replace(causal.dq_mask_info, *by_query),
    replace(causal.dkv_mask_info, key_runs, key_fetches),
    **kwargs,
  )


def _in_window(
  window: int, queries: Int[Array, "..."], keys: Int[Array, "..."]
) -> Bool[Array, "..."]:
  """Returns whether queries at some positions see keys at others."""
  return (queries >= keys) & (queries - keys < window)


def _fetch_schedule(
  live: Bool[Array, "rows columns"],
) -> tuple[Int[Array, "rows columns"], Int[Array, "rows columns"]]:
  """Returns the schedule of a kernel that goes through blocks row by row.

  Returns:
    1 where a block runs and 0 elsewhere, and the column to prefetch: the row's
    next live block or, if there is none, the first live block of the next row.
  """
  count = live.shape[1]
  columns = jnp.where(live, jnp.arange(count)[None, :], count)
  following = jax.lax.cummin(columns, axis=1, reverse=True)
  next_row = jnp.roll(following[:, :1], -1, axis=0)
  fetches = jnp.where(following < count, following, next_row)
  # A row without live blocks runs none, so what it prefetches does not matter.
  fetches = jnp.minimum(fetches, count - 1)
  return live.astype(jnp.int32), fetches.astype(jnp.int32)
