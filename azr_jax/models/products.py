"""Products with kernels that are sharded over the `fsdp` axis of a mesh.

XLA's partitioner would turn each product into a ring of partial products, one
per device, whose sums go through memory and are rounded at every step. Here
each device gathers the kernel first, and one reduce-scatter sums its gradient.

Sampling may multiply by 8-bit kernels (`quantization.py`): any of these
products, then `rescale`.
"""

import functools
import math
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Float32, Num

from azr_jax.models import quantization
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Rules

# (x [B, S, *in], kernel [*in, *out], logical axes of the kernel, number of
# axes *in) -> the product [B, S, *out], in the type of x.
MultiplyFn: TypeAlias = Callable[
  [
    Float[Array, "B S ..."],
    Num[Array, "..."],
    tuple[str | None, ...],
    int,
  ],
  Float[Array, "B S ..."],
]


def multiply(
  x: Float[Array, "B S ..."],
  kernel: Num[Array, "..."],
  axes: tuple[str | None, ...],
  summed: int,
) -> Float[Array, "B S ..."]:
  """Returns the product with a kernel that needs no gathering."""
  del axes
  return _multiply(_tensordot, summed, x, kernel)


def multiply_rows(
  x: Float[Array, "B S ..."],
  kernel: Num[Array, "..."],
  axes: tuple[str | None, ...],
  summed: int,
) -> Float[Array, "B S ..."]:
  """Returns the same product, computed as a product of two matrices.

  XLA:CPU sums over two axes, as the kernel's gradient does over B and S, by
  transposing an operand first. That takes a third of an MLP's backward pass.
  """
  del axes
  return _multiply(_product_of_rows, summed, x, kernel)


def _tensordot(
  x: Float[Array, "B S ..."], kernel: Float[Array, "..."], summed: int
) -> Float[Array, "B S ..."]:
  return jnp.tensordot(x, kernel, axes=summed)


def _product_of_rows(
  x: Float[Array, "B S ..."], kernel: Float[Array, "..."], summed: int
) -> Float[Array, "B S ..."]:
  summed_size = math.prod(kernel.shape[:summed])
  rows = x.reshape(-1, summed_size)
  y = rows @ kernel.reshape(summed_size, -1)
  return y.reshape(*x.shape[: x.ndim - summed], *kernel.shape[summed:])


def _multiply(
  product: Callable[..., Float[Array, "B S ..."]],
  summed: int,
  x: Float[Array, "B S ..."],
  kernel: Num[Array, "..."],
) -> Float[Array, "B S ..."]:
  """Returns a product with a kernel of any dtype, in the type of x."""
  if quantization.is_quantized(kernel.dtype):
    return _multiply_frozen(product, summed, x, kernel)
  return product(x, kernel.astype(x.dtype), summed)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _multiply_frozen(
  product: Callable[..., Float[Array, "B S ..."]],
  summed: int,
  x: Float[Array, "B S ..."],
  kernel: Num[Array, "..."],
) -> Float[Array, "B S ..."]:
  """Returns the product with a kernel that gets no gradient.

  For the backward pass it keeps the kernel's 8 bits and converts them again.
  """
  return product(x, kernel.astype(x.dtype), summed)


def _frozen_forward(
  product: Callable[..., Float[Array, "B S ..."]],
  summed: int,
  x: Float[Array, "B S ..."],
  kernel: Num[Array, "..."],
) -> tuple[Float[Array, "B S ..."], Num[Array, "..."]]:
  return _multiply_frozen(product, summed, x, kernel), kernel


def _frozen_backward(
  product: Callable[..., Float[Array, "B S ..."]],
  summed: int,
  kernel: Num[Array, "..."],
  grad: Float[Array, "B S ..."],
) -> tuple[Float[Array, "B S ..."], None]:
  lead = grad.shape[: grad.ndim - (kernel.ndim - summed)]
  of_x = jax.ShapeDtypeStruct((*lead, *kernel.shape[:summed]), grad.dtype)
  transposed = jax.linear_transpose(
    lambda x: product(x, kernel.astype(grad.dtype), summed), of_x
  )
  return transposed(grad)[0], None


_multiply_frozen.defvjp(_frozen_forward, _frozen_backward)


def rescale(
  y: Float[Array, "B S *out"], scale: Float32[Array, "*out"]
) -> Float[Array, "B S *out"]:
  """Applies a quantized kernel's scales to a product with its 8-bit values.

  Args:
    y: the product with the 8-bit values.
    scale: the scale of each output channel.
  """
  scale = jnp.expand_dims(scale, range(y.ndim - scale.ndim))
  return (y.astype(jnp.float32) * scale).astype(y.dtype)


def make(mesh: Mesh, rules: Rules) -> MultiplyFn:
  """Returns the product for kernels sharded over a mesh by these rules.

  Args:
    mesh: the device mesh; `x` is sharded by `mesh.TOKENS`.
    rules: logical parameter axis to mesh axis.
  """
  on_cpu = mesh_lib.platform(mesh) == "cpu" and mesh.shape["context"] == 1
  product = multiply_rows if on_cpu else multiply
  if mesh.shape["fsdp"] == 1:
    return product

  def gather_and_multiply(
    x: jax.Array, kernel: jax.Array, axes: tuple[str | None, ...], summed: int
  ) -> jax.Array:
    spec = mesh_lib.param_spec(axes, kernel.shape, mesh, rules)
    if "fsdp" not in spec:
      return product(x, kernel, axes, summed)
    split = spec.index("fsdp")
    if kernel.dtype.itemsize > x.dtype.itemsize:
      kernel = kernel.astype(x.dtype)  # Fewer bytes to gather.

    def on_shard(x: jax.Array, shard: jax.Array) -> jax.Array:
      whole = jax.lax.all_gather(shard, "fsdp", axis=split, tiled=True)
      return product(x, whole, axes, summed)

    return jax.shard_map(
      on_shard,
      mesh=mesh,
      in_specs=(
        mesh_lib.TOKENS,
        PartitionSpec(*[None] * split, "fsdp"),
      ),
      out_specs=mesh_lib.TOKENS,
      # The partitioner still splits the product over `tensor`.
      axis_names={*mesh_lib.BATCH_AXES, "context"},
    )(x, kernel)

  return gather_and_multiply
