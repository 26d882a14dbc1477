"""Flash attention for TPUs: JAX's Pallas kernel "splash"."""

import functools
from collections.abc import Callable
from typing import cast

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

# Queries or keys that the kernel handles at a time.
_BLOCK_TOKENS = 512
# The last axis of a TPU register; lengths and head sizes are padded to it.
_LANES = 128
# The name of what the backward kernels need of the forward one: its output and
# the normalizers of its softmax.
RESIDUALS = "attention"


def make_attention(
  mesh: Mesh, interpret: bool = False
) -> Callable[..., jax.Array]:
  """Returns Pallas's flash attention, which never holds an [S, S] array.

  Blocks of keys that hold no sequence of a block of queries are neither read
  nor computed, so a row of many sequences costs what they cost apart.

  Args:
    mesh: rows lie over its batch axes, heads over `tensor` if it divides the
      key heads.
    interpret: run the kernel step by step on any device, for tests.

  Returns:
    An `attention.AttentionFn`.
  """

  def attend(
    q: Float[Array, "B S H E"],
    k: Float[Array, "B S K E"],
    v: Float[Array, "B S K E"],
    segment_ids: Int[Array, "B S"],
  ) -> Float[Array, "B S H E"]:
    tensor = mesh.shape["tensor"]
    heads = "tensor" if k.shape[2] % tensor == 0 else None
    rows = PartitionSpec(mesh_lib.BATCH_AXES)
    by_head = PartitionSpec(mesh_lib.BATCH_AXES, None, heads)
    attend_shard = jax.shard_map(
      functools.partial(_attend_shard, interpret=interpret),
      mesh=mesh,
      in_specs=(by_head, by_head, by_head, rows),
      out_specs=by_head,
      # The kernel does not declare over which axes its results vary.
      check_vma=False,
    )
    return attend_shard(q, k, v, segment_ids)

  return attend


def _attend_shard(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  segment_ids: Int[Array, "B S"],
  interpret: bool,
) -> Float[Array, "B S H E"]:
  """Runs the kernel on the rows and heads of one device."""
  _, S, H, E = q.shape
  block = min(_BLOCK_TOKENS, S + -S % _LANES)
  pad_S, pad_E = -S % block, -E % _LANES

  def prepare(x: jax.Array) -> jax.Array:
    padded = jnp.pad(x, ((0, 0), (0, pad_S), (0, 0), (0, pad_E)))
    return jnp.swapaxes(padded, 1, 2)

  mask = splash_attention.MultiHeadMask(
    [splash_attention.CausalMask((S + pad_S, S + pad_S))] * H
  )
  # A fused backward kernel would write the gradient of the queries once for
  # each block of keys.
  causal = splash_attention.make_splash_mha(
    mask,
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

  def attend_row(
    q: Float[Array, "H S E"],
    k: Float[Array, "K S E"],
    v: Float[Array, "K S E"],
    segments: Int[Array, " S"],
  ) -> Float[Array, "H S E"]:
    kernel = _skipping(causal, live_blocks(segments, block))
    ids = splash_attention.SegmentIds(segments, segments)
    # The kernel returns a tuple only if it is asked for residuals.
    return cast(jax.Array, kernel(q, k, v, ids))

  # Tokens added here have segment 0, as the padding of a row; the causal mask
  # hides them from it.
  segments = jnp.pad(segment_ids, ((0, 0), (0, pad_S)))
  out = jax.vmap(attend_row)(
    prepare(q * E**-0.5), prepare(k), prepare(v), segments
  )
  return jnp.swapaxes(out, 1, 2)[:, :S, :, :E]


def live_blocks(
  segments: Int[Array, " S"], block: int
) -> Bool[Array, "blocks blocks"]:
  """Returns whether a block of queries may see something in a block of keys.

  Blocks are compared by their smallest and largest segment. Padding counts as
  the last segment, because it stands at the end of a row.

  Args:
    segments: the segment of each token of a row.
    block: tokens of a block; it divides S.
  """
  last = jnp.iinfo(segments.dtype).max
  by_block = jnp.where(segments > 0, segments, last).reshape(-1, block)
  low, high = jnp.min(by_block, axis=1), jnp.max(by_block, axis=1)
  overlap = (low[None, :] <= high[:, None]) & (low[:, None] <= high[None, :])
  return jnp.tril(overlap)


def _skipping(
  causal: splash_attention_kernel.SplashAttentionKernel,
  live: Bool[Array, "blocks blocks"],
) -> splash_attention_kernel.SplashAttentionKernel:
  """Returns a causal kernel that runs the blocks that are live alone."""
  by_query, by_key = _visits(live), _visits(live.T)

  def replace(
    info: splash_attention_mask_info.MaskInfo | None,
    runs: jax.Array,
    fetches: jax.Array,
  ) -> splash_attention_mask_info.MaskInfo:
    assert info is not None
    return info._replace(block_mask=runs[None], data_next=fetches[None])

  runs, fetches = by_query
  # The kernel of the keys' gradients has queries in the first axis, too.
  key_runs, key_fetches = (array.T for array in by_key)
  return splash_attention_kernel.SplashAttentionKernel(
    replace(causal.fwd_mask_info, runs, fetches),
    replace(causal.dq_mask_info, runs, fetches),
    replace(causal.dkv_mask_info, key_runs, key_fetches),
    **causal.kwargs,
  )


def _visits(
  live: Bool[Array, "blocks blocks"],
) -> tuple[Int[Array, "blocks blocks"], Int[Array, "blocks blocks"]]:
  """Returns what a kernel reads when it goes through blocks, row by row.

  Returns:
    1 where a block runs and 0 elsewhere, and the column to have at hand: that
    of the row's next live block, or else the first of the next row.
  """
  blocks = live.shape[0]
  columns = jnp.where(live, jnp.arange(blocks)[None, :], blocks)
  following = jax.lax.cummin(columns, axis=1, reverse=True)
  next_row = jnp.roll(following[:, :1], -1, axis=0)
  fetches = jnp.where(following < blocks, following, next_row)
  return live.astype(jnp.int32), fetches.astype(jnp.int32)
