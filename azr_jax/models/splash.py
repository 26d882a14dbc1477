"""Flash attention for TPUs: JAX's Pallas kernel "splash"."""

import functools
from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from azr_jax.parallel import mesh as mesh_lib

# Queries or keys that the kernel handles at a time.
_BLOCK_TOKENS = 512
# The last axis of a TPU register; lengths and head sizes are padded to it.
_LANES = 128


def make_attention(
  mesh: Mesh, interpret: bool = False
) -> Callable[..., jax.Array]:
  """Returns Pallas's flash attention, which never holds an [S, S] array.

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
  kernel = splash_attention.make_splash_mha(
    mask,
    head_shards=1,
    q_seq_shards=1,
    block_sizes=splash_attention.BlockSizes(
      block_q=block,
      block_kv=block,
      block_q_dkv=block,
      block_kv_dkv=block,
      use_fused_bwd_kernel=True,
    ),
    interpret=interpret,
  )
  # Tokens added here have segment 0, as the padding of a row; the causal mask
  # hides them from it.
  segments = jnp.pad(segment_ids, ((0, 0), (0, pad_S)))
  out = jax.vmap(kernel)(
    prepare(q * E**-0.5),
    prepare(k),
    prepare(v),
    splash_attention.SegmentIds(segments, segments),
  )
  # The kernel returns a tuple only if it is asked for residuals.
  out = cast(jax.Array, out)
  return jnp.swapaxes(out, 1, 2)[:, :S, :, :E]
