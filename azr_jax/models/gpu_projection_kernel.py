"""Pallas kernel for GPUs: queries, keys and values of a few tokens.

XLA runs a layer's first norm, the joined product, and bias and rotation as
three operations. Decoding a few slots, a small model spends much of its time on
starting operations. Here, one kernel does all three: each program normalizes
all tokens again, multiplies them by the columns of some channel pairs, and
rotates these.

Axis letters are defined in `types.py`. The members of a key head are its G
queries, its key and its value.
"""

import dataclasses
import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.sharding import Mesh, PartitionSpec
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Float32, Int

from azr_jax.models import rope
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib

# Queries, keys and values.
Heads: TypeAlias = tuple[
  Float[Array, "B S H E"], Float[Array, "B S K E"], Float[Array, "B S K E"]
]
# Maximum tokens of a device. With more, every program would normalize and
# multiply more, while starting an operation takes as long as with few.
MAX_TOKENS = 64
# Maximum channel pairs of a program, and input channels that it multiplies at a
# time. Few pairs make many programs.
_PAIRS, _DEPTH = 32, 128
# Minimum rows, columns and depth of a matrix product.
_PRODUCT = 16
_PARAMS = plgpu.CompilerParams(num_warps=4, num_stages=4)


@dataclasses.dataclass(frozen=True)
class HeadProjection:
  """The kernel on a mesh whose devices each hold whole weights.

  Attributes:
    mesh: the device mesh, which shards only rows.
    config: the decoder's config.
    interpret: run the kernel in interpret mode on any device, for tests.
  """

  mesh: Mesh
  config: ModelConfig
  interpret: bool = False

  def fits(self, tokens: int) -> bool:
    """Returns whether the kernel takes so many tokens of all devices."""
    return tokens <= MAX_TOKENS * mesh_lib.batch_devices(self.mesh)

  def __call__(
    self,
    x: Float[Array, "B S D"],
    scale: Float32[Array, " D"],
    kernel: Float[Array, "D K members E"],
    bias: Float[Array, "K members E"] | None,
    positions: Int[Array, "B S"],
  ) -> Heads:
    """Returns rotated queries and keys, and values; arguments as `project`."""
    by_row: Any = PartitionSpec(mesh_lib.BATCH_AXES)
    whole: Any = PartitionSpec()
    return jax.shard_map(
      functools.partial(project, config=self.config, interpret=self.interpret),
      mesh=self.mesh,
      in_specs=(by_row, whole, whole, whole, by_row),
      out_specs=by_row,
      check_vma=False,
    )(x, scale, kernel, bias, positions)


def make(
  mesh: Mesh, config: ModelConfig, dtype: DTypeLike
) -> HeadProjection | None:
  """Returns the projection; None if the kernel cannot compute it.

  Args:
    mesh: the mesh to sample on.
    config: the decoder's config.
    dtype: the type of kernels and computation.
  """
  pairs, rotary = config.head_size // 2, rope.of_layers(config)
  fits = (
    mesh_lib.platform(mesh) == "gpu"
    and mesh.shape["fsdp"] == mesh.shape["tensor"] == 1
    and not config.qk_norm
    and not config.joint_qk_norm
    and config.norm_before
    and rotary.frequencies.shape == (pairs,)
    and rotary.magnitude is None
    and config.hidden_size % _PRODUCT == 0
    # Triton needs powers of 2.
    and pairs >= _PRODUCT
    and pairs & (pairs - 1) == 0
    and jnp.dtype(dtype) in (jnp.bfloat16, jnp.float16)
  )
  return HeadProjection(mesh, config) if fits else None


def project(
  x: Float[Array, "B S D"],
  scale: Float32[Array, " D"],
  kernel: Float[Array, "D K members E"],
  bias: Float[Array, "K members E"] | None,
  positions: Int[Array, "B S"],
  config: ModelConfig,
  interpret: bool = False,
) -> Heads:
  """Returns rotated queries and keys, and values, on one device.

  Args:
    x: hidden states before the norm, of at most `MAX_TOKENS` tokens.
    scale: the norm's scale.
    kernel: the joined kernel of `sampling_params.fuse`.
    bias: the kernel's bias, if it has one.
    positions: position of each token in its sequence.
    config: the decoder's config.
    interpret: run the kernel in interpret mode on any device, for tests.
  """
  (B, S, D), (_, K, members, E) = x.shape, kernel.shape
  tokens, pairs = B * S, min(_PAIRS, E // 2)
  frequencies = rope.of_layers(config).frequencies
  angles = rope.angles(positions.reshape(tokens), frequencies)
  heads = pl.pallas_call(
    functools.partial(
      _project,
      eps=config.norm_eps,
      rows=max(_PRODUCT, pl.next_power_of_2(tokens)),
      pairs=pairs,
      depth=min(D & -D, _DEPTH),
    ),
    grid=(K, members, E // 2 // pairs),
    out_shape=jax.ShapeDtypeStruct((tokens, K, members, E), x.dtype),
    compiler_params=_PARAMS,
    name="decode_projection",
    interpret=interpret,
  )(x.reshape(tokens, D), scale, kernel, bias, jnp.cos(angles), jnp.sin(angles))
  # If attention joins these slices again (`gpu_page_kernel.py`), XLA sees that
  # it gets the kernel's result.
  q, k, v = jnp.split(heads, (members - 2, members - 1), axis=2)
  return q.reshape(B, S, -1, E), k.reshape(B, S, K, E), v.reshape(B, S, K, E)


def _project(
  x_ref: Any,
  scale_ref: Any,
  kernel_ref: Any,
  bias_ref: Any | None,
  cos_ref: Any,
  sin_ref: Any,
  out_ref: Any,
  *,
  eps: float,
  rows: int,
  pairs: int,
  depth: int,
) -> None:
  """Writes some channel pairs of a query, key or value head."""
  (tokens, D), (_, _, members, E) = x_ref.shape, kernel_ref.shape
  head, member, part = (pl.program_id(axis) for axis in range(3))
  dtype = x_ref.dtype
  exists = (jnp.arange(rows) < tokens)[:, None]
  halves = [pl.ds(start + part * pairs, pairs) for start in (0, E // 2)]

  def read(step: jax.Array) -> jax.Array:
    channels = pl.ds(step * depth, depth)
    x = plgpu.load(x_ref.at[pl.ds(0, rows), channels], mask=exists, other=0)
    return x.astype(jnp.float32)

  def add_squares(step: jax.Array, total: jax.Array) -> jax.Array:
    return total + jnp.sum(read(step) ** 2, axis=1)

  def add_products(step: jax.Array, sums: list[jax.Array]) -> list[jax.Array]:
    channels = pl.ds(step * depth, depth)
    normed = (read(step) * inverse * scale_ref[channels][None, :]).astype(dtype)
    return [
      total + plgpu.dot(normed, kernel_ref[channels, head, member, half])
      for total, half in zip(sums, halves, strict=True)
    ]

  steps, zero = D // depth, jnp.zeros(rows, jnp.float32)
  squares = jax.lax.fori_loop(0, steps, add_squares, zero)
  inverse = jax.lax.rsqrt(squares / D + eps)[:, None]
  sums = [jnp.zeros((rows, pairs), jnp.float32)] * 2
  sums = jax.lax.fori_loop(0, steps, add_products, sums)
  # Rounded after the product and after the bias, as without the kernel.
  plain = [total.astype(dtype) for total in sums]
  if bias_ref is not None:
    plain = [
      x + bias_ref[head, member, half][None, :].astype(dtype)
      for x, half in zip(plain, halves, strict=True)
    ]
  of_pairs = pl.ds(0, rows), pl.ds(part * pairs, pairs)
  cos, sin = (
    plgpu.load(ref.at[of_pairs], mask=exists, other=0)
    for ref in (cos_ref, sin_ref)
  )
  first, second = (x.astype(jnp.float32) for x in plain)
  rotated = rope.rotate_pairs(first, second, cos, sin)
  for half, x, turned in zip(halves, plain, rotated, strict=True):
    plgpu.store(
      out_ref.at[pl.ds(0, rows), head, member, half],
      # The last member is the value, which is not rotated.
      jnp.where(member < members - 1, turned.astype(dtype), x),
      mask=exists,
    )
