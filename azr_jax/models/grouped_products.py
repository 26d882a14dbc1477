"""Products of rows with the kernels of their groups.

Rows of the same expert lie together. A platform has its own product:

| platform | product with kernels | gradient of the kernels |
| --- | --- | --- |
| TPU | `jax.lax.ragged_dot` | megablox |
| GPU | Triton (`gpu_grouped_kernel.py`) | Triton |
| CPU | a loop over blocks of rows | the same loop |

XLA's own gradient of `ragged_dot` multiplies every row with every kernel, on
all platforms. Here a gradient has the FLOPs of the product itself.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Num

from azr_jax.models import gpu_grouped_kernel, quantization

# Largest and smallest number of rows in a block.
_MAX_BLOCK, _MIN_BLOCK = {"gpu": 128, "cpu": 64}, {"gpu": 16, "cpu": 4}
# Rows of a megablox tile, and its largest sides in the kernel's gradient.
_TPU_ROWS, _TPU_MANY_ROWS, _TPU_SIDES = 128, 512, (1024, 768)


@dataclasses.dataclass(frozen=True)
class GroupedProduct:
  """The product of one platform.

  Attributes:
    platform: cpu, gpu or tpu.
    block: the rows of each group fill blocks of this size, padded with zeros.
    multiple: the number of all rows is a multiple of it.
    interpret: run kernels in interpret mode, for tests.
  """

  platform: str
  block: int
  multiple: int
  interpret: bool = False

  def rows(self, filled: int, groups: int) -> int:
    """Returns the number of rows with room for any sizes of groups.

    Args:
      filled: the rows of all groups, without padding.
      groups: the number of groups.
    """
    most = filled + min(filled, groups) * (self.block - 1)
    return -(-most // self.multiple) * self.multiple

  def __call__(
    self,
    rows: Float[Array, "rows inner"],
    kernel: Num[Array, "X inner outer"],
    sizes: Int[Array, " X"],
  ) -> Float[Array, "rows outer"]:
    """Returns the product of each row with the kernel of its group.

    Args:
      rows: the rows of all groups, one group after the other, in blocks.
      kernel: the kernels. Those of 8 bits get no gradient.
      sizes: number of rows in each group, padding included. Rows past the
        last group give 0.
    """
    if quantization.is_quantized(kernel.dtype):
      return _multiply_frozen(self, rows, kernel, sizes)
    return _multiply(self, rows, kernel.astype(rows.dtype), sizes)


def make(
  platform: str, filled: int, groups: int, *, interpret: bool = False
) -> GroupedProduct:
  """Returns the product of a platform for some number of rows.

  Args:
    platform: cpu, gpu or tpu.
    filled: the rows of all groups.
    groups: the number of groups.
    interpret: run kernels in interpret mode, for tests.
  """
  if platform == "tpu":
    is_many = filled >= 8 * _TPU_MANY_ROWS
    multiple = _TPU_MANY_ROWS if is_many else _TPU_ROWS
    return GroupedProduct(platform, 1, multiple, interpret)
  # As many rows as a group has on average. Padding then costs less than half.
  mean = 1 << max(filled // groups, 1).bit_length() - 1
  block = min(max(mean, _MIN_BLOCK[platform]), _MAX_BLOCK[platform])
  return GroupedProduct(platform, block, block, interpret)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _multiply(
  how: GroupedProduct,
  rows: Float[Array, "rows inner"],
  kernel: Float[Array, "X inner outer"],
  sizes: Int[Array, " X"],
) -> Float[Array, "rows outer"]:
  return _product(how, rows, kernel, sizes)


def _forward(
  how: GroupedProduct,
  rows: Float[Array, "rows inner"],
  kernel: Float[Array, "X inner outer"],
  sizes: Int[Array, " X"],
) -> tuple[Float[Array, "rows outer"], Any]:
  return _product(how, rows, kernel, sizes), (rows, kernel, sizes)


def _backward(
  how: GroupedProduct, kept: Any, grad: Float[Array, "rows outer"]
) -> tuple[Float[Array, "rows inner"], Float[Array, "X inner outer"], None]:
  rows, kernel, sizes = kept
  of_rows = _product(how, grad, kernel, sizes, transposed=True)
  return of_rows, _kernel_gradient(how, rows, grad, sizes, kernel.dtype), None


_multiply.defvjp(_forward, _backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _multiply_frozen(
  how: GroupedProduct,
  rows: Float[Array, "rows inner"],
  kernel: Num[Array, "X inner outer"],
  sizes: Int[Array, " X"],
) -> Float[Array, "rows outer"]:
  return _product(how, rows, kernel, sizes)


def _frozen_forward(
  how: GroupedProduct,
  rows: Float[Array, "rows inner"],
  kernel: Num[Array, "X inner outer"],
  sizes: Int[Array, " X"],
) -> tuple[Float[Array, "rows outer"], Any]:
  return _product(how, rows, kernel, sizes), (kernel, sizes)


def _frozen_backward(
  how: GroupedProduct, kept: Any, grad: Float[Array, "rows outer"]
) -> tuple[Float[Array, "rows inner"], None, None]:
  return _product(how, grad, *kept, transposed=True), None, None


_multiply_frozen.defvjp(_frozen_forward, _frozen_backward)


def _product(
  how: GroupedProduct,
  rows: Float[Array, "rows _a"],
  kernel: Num[Array, "X _b _c"],
  sizes: Int[Array, " X"],
  transposed: bool = False,
) -> Float[Array, "rows _d"]:
  """Returns the product with kernels, or with transposed ones."""
  if how.platform == "gpu":
    return gpu_grouped_kernel.multiply(
      *(rows, kernel, sizes, how.block, transposed), interpret=how.interpret
    )
  if how.platform == "tpu":
    kernel = kernel.astype(rows.dtype)
    kernel = kernel.swapaxes(1, 2) if transposed else kernel
    return jax.lax.ragged_dot(
      rows, kernel, sizes, preferred_element_type=rows.dtype
    )

  def step(block: jax.Array, done: jax.Array) -> jax.Array:
    x, own = _block(how, rows, block), _group(how, sizes, block)
    w = jax.lax.dynamic_index_in_dim(kernel, own, keepdims=False)
    w = w.T if transposed else w
    y = x @ w.astype(x.dtype)
    return jax.lax.dynamic_update_slice_in_dim(done, y, block * how.block, 0)

  size = kernel.shape[1 if transposed else 2]
  none = jnp.zeros((rows.shape[0], size), rows.dtype)
  return jax.lax.fori_loop(0, jnp.sum(sizes) // how.block, step, none)


def _kernel_gradient(
  how: GroupedProduct,
  rows: Float[Array, "rows inner"],
  grad: Float[Array, "rows outer"],
  sizes: Int[Array, " X"],
  dtype: DTypeLike,
) -> Float[Array, "X inner outer"]:
  """Returns the sum over each group's rows of the outer products."""
  if how.platform == "gpu":
    return gpu_grouped_kernel.kernel_gradient(
      *(rows, grad, sizes, how.block, dtype), interpret=how.interpret
    )
  if how.platform == "tpu":
    return _megablox_gradient(how, rows, grad, sizes, dtype)

  def step(block: jax.Array, total: jax.Array) -> jax.Array:
    own = _group(how, sizes, block)
    x, g = (_block(how, array, block) for array in (rows, grad))
    more = jnp.matmul(x.T, g, preferred_element_type=jnp.float32)
    return total.at[own].add(more)

  none = jnp.zeros((sizes.shape[0], rows.shape[1], grad.shape[1]), jnp.float32)
  count = jnp.sum(sizes) // how.block
  return jax.lax.fori_loop(0, count, step, none).astype(dtype)


def _block(
  how: GroupedProduct, rows: Float[Array, "rows _in"], block: Int[Array, ""]
) -> Float[Array, "block _in"]:
  """Returns the rows of a block."""
  start = block * how.block
  return jax.lax.dynamic_slice_in_dim(rows, start, how.block, 0)


def _group(
  how: GroupedProduct, sizes: Int[Array, " X"], block: Int[Array, ""]
) -> Int[Array, ""]:
  """Returns the group that a block belongs to."""
  return jnp.sum(jnp.cumsum(sizes) <= block * how.block)


def _megablox_gradient(
  how: GroupedProduct,
  rows: Float[Array, "rows inner"],
  grad: Float[Array, "rows outer"],
  sizes: Int[Array, " X"],
  dtype: DTypeLike,
) -> Float[Array, "X inner outer"]:
  """Returns `_kernel_gradient` by megablox's kernel for TPUs."""
  # Its package names a function like the module, which hides it.
  from jax.experimental.pallas.ops.tpu.megablox.gmm import tgmm

  sides = (
    max(_divisors(array.shape[1], side))
    for array, side in zip((rows, grad), _TPU_SIDES, strict=True)
  )
  total = tgmm(
    *(rows.swapaxes(0, 1), grad, sizes, dtype, (how.multiple, *sides)),
    interpret=how.interpret,
  )
  # Only groups with rows are sure to be written.
  return jnp.where(sizes[:, None, None] > 0, total, 0)


def _divisors(size: int, most: int) -> list[int]:
  """Returns the sides of a tile that divide an axis."""
  if size <= most:
    return [size]
  sides = [n for n in range(_TPU_ROWS, most + 1, _TPU_ROWS) if not size % n]
  return sides or [most]
