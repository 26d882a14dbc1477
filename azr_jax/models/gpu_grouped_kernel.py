"""Triton kernels for GPUs: products of rows with the kernels of their groups.

The rows of each group fill whole blocks (`grouped_products.py`), so that a
program multiplies one block with one kernel and needs no mask. For the gradient
of a kernel, a program goes through all blocks of its group; without any, it
writes 0.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Num

# Sides of kernels are padded to this minimum of a matrix product.
_PRODUCT = 16
# Largest sides of a program's part of a product, and its depth.
_SIDE, _DEPTH = 128, 64
_PARAMS = plgpu.CompilerParams(num_warps=4, num_stages=3)


def multiply(
  rows: Float[Array, "rows _a"],
  kernel: Num[Array, "X _b _c"],
  sizes: Int[Array, " X"],
  block: int,
  transposed: bool,
  interpret: bool = False,
) -> Float[Array, "rows _d"]:
  """Returns the product of each row with its group's kernel.

  Args:
    rows: the rows of all groups, in blocks.
    kernel: the kernels [X, in, out], also with 8 bits.
    sizes: the rows of each group; multiples of `block`.
    block: the rows of a block.
    transposed: whether rows have the kernels' output axis, which is summed.
    interpret: run the kernel in interpret mode on any device, for tests.
  """
  size = kernel.shape[1 if transposed else 2]
  rows, kernel = _padded(rows, (1,)), _padded(kernel, (1, 2))
  count, out = rows.shape[0] // block, kernel.shape[1 if transposed else 2]
  # Blocks past the last group get number X.
  group = jnp.searchsorted(
    jnp.cumsum(sizes), jnp.arange(count) * block, side="right"
  ).astype(jnp.int32)
  side, depth = _side(out, _SIDE), _side(rows.shape[1], _DEPTH)
  product = pl.pallas_call(
    functools.partial(
      *(_multiply_block,), block=block, side=side, depth=depth, flip=transposed
    ),
    grid=(out // side, count),
    out_shape=jax.ShapeDtypeStruct((rows.shape[0], out), rows.dtype),
    compiler_params=_PARAMS,
    name="grouped_product",
    interpret=interpret,
  )(rows, kernel, group)
  return product[:, :size]


def kernel_gradient(
  rows: Float[Array, "rows inner"],
  grad: Float[Array, "rows outer"],
  sizes: Int[Array, " X"],
  block: int,
  dtype: DTypeLike,
  interpret: bool = False,
) -> Float[Array, "X inner outer"]:
  """Returns the gradient of the kernels, 0 for groups without rows.

  Args:
    rows: the rows of all groups, in blocks.
    grad: the gradient of their products.
    sizes: the rows of each group; multiples of `block`.
    block: the rows of a block.
    dtype: the gradient's dtype.
    interpret: run the kernel in interpret mode on any device, for tests.
  """
  shape = rows.shape[1], grad.shape[1]
  rows, grad = _padded(rows, (1,)), _padded(grad, (1,))
  inner, outer = rows.shape[1], grad.shape[1]
  sides = _side(inner, _SIDE), _side(outer, _SIDE)
  ends = jnp.cumsum(sizes).astype(jnp.int32)
  total = pl.pallas_call(
    functools.partial(_sum_blocks, block=block, sides=sides),
    grid=(outer // sides[1], inner // sides[0], sizes.shape[0]),
    out_shape=jax.ShapeDtypeStruct((sizes.shape[0], inner, outer), dtype),
    compiler_params=_PARAMS,
    name="grouped_gradient",
    interpret=interpret,
  )(rows, grad, (ends - sizes) // block, ends // block)
  return total[:, : shape[0], : shape[1]]


def _side(size: int, most: int) -> int:
  """Returns the largest power of 2 that divides a size, at most `most`."""
  return min(size & -size, most)


def _padded(x: Num[Array, "..."], axes: tuple[int, ...]) -> Num[Array, "..."]:
  """Pads axes with zeros to the minimum of a matrix product."""
  widths = [
    (0, -x.shape[axis] % _PRODUCT if axis in axes else 0)
    for axis in range(x.ndim)
  ]
  return jnp.pad(x, widths) if any(map(any, widths)) else x


def _multiply_block(
  rows_ref: Any,
  kernel_ref: Any,
  group_ref: Any,
  out_ref: Any,
  *,
  block: int,
  side: int,
  depth: int,
  flip: bool,
) -> None:
  """Writes some columns of the product of a block."""
  column, number = pl.program_id(0), pl.program_id(1)
  group = group_ref[number]
  own_rows = pl.ds(number * block, block)
  columns = pl.ds(column * side, side)
  exists = group < kernel_ref.shape[0]

  def add(step: jax.Array, total: jax.Array) -> jax.Array:
    part = pl.ds(step * depth, depth)
    x = rows_ref[own_rows, part]
    w = kernel_ref[group, columns, part] if flip else None
    w = kernel_ref[group, part, columns] if w is None else w.T
    return total + plgpu.dot(x, w.astype(x.dtype))

  steps = exists.astype(jnp.int32) * (rows_ref.shape[1] // depth)
  total = jnp.zeros((block, side), jnp.float32)
  total = jax.lax.fori_loop(0, steps, add, total)
  out_ref[own_rows, columns] = total.astype(out_ref.dtype)


def _sum_blocks(
  rows_ref: Any,
  grad_ref: Any,
  start_ref: Any,
  end_ref: Any,
  out_ref: Any,
  *,
  block: int,
  sides: tuple[int, int],
) -> None:
  """Writes a part of the gradient of one group's kernel."""
  outer, inner, group = (pl.program_id(axis) for axis in range(3))
  channels = (
    pl.ds(inner * sides[0], sides[0]),
    pl.ds(outer * sides[1], sides[1]),
  )

  def add(number: jax.Array, total: jax.Array) -> jax.Array:
    own = pl.ds(number * block, block)
    x, g = rows_ref[own, channels[0]], grad_ref[own, channels[1]]
    return total + plgpu.dot(x.T, g)

  total = jnp.zeros(sides, jnp.float32)
  total = jax.lax.fori_loop(start_ref[group], end_ref[group], add, total)
  out_ref[group, *channels] = total.astype(out_ref.dtype)
