"""Products with kernels that are split over the `fsdp` axis of a mesh.

XLA's partitioner would turn each into a ring of partial products, one for each
device, whose sums go through memory and are rounded at every turn. Here each
device gathers the kernel first, and one reduce-scatter sums its gradient.

Sampling may multiply by kernels of 8 bits (`quantization.py`): any of these
products, then `rescale`.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from azr_jax.parallel import mesh as mesh_lib
from azr_jax.types import Rules

# (x [B, S, *I], kernel [*I, *O], logical axes of the kernel, number of axes I)
# to the product [B, S, *O].
MultiplyFn: TypeAlias = Callable[
  [jax.Array, jax.Array, tuple[str | None, ...], int], jax.Array
]


def multiply(
  x: jax.Array, kernel: jax.Array, axes: tuple[str | None, ...], summed: int
) -> jax.Array:
  """Returns the product of a kernel that lies whole where it is needed."""
  del axes
  return jnp.tensordot(x, kernel, axes=summed)


def rescale(y: jax.Array, scale: jax.Array) -> jax.Array:
  """Returns the product with a quantized kernel from that with its numbers.

  Args:
    y: [B, S, *O], the product with the numbers of 8 bits.
    scale: float32 [*O].
  """
  scale = jnp.expand_dims(scale, range(y.ndim - scale.ndim))
  return (y.astype(jnp.float32) * scale).astype(y.dtype)


def make(mesh: Mesh, rules: Rules) -> MultiplyFn:
  """Returns the product for kernels that lie on a mesh by these rules.

  Args:
    mesh: `x` lies over it by `mesh.TOKENS`.
    rules: logical parameter axis to mesh axis.
  """
  if mesh.shape["fsdp"] == 1:
    return multiply

  def gather_and_multiply(
    x: jax.Array, kernel: jax.Array, axes: tuple[str | None, ...], summed: int
  ) -> jax.Array:
    spec = mesh_lib.param_spec(axes, kernel.shape, mesh, rules)
    if "fsdp" not in spec:
      return multiply(x, kernel, axes, summed)
    split = spec.index("fsdp")

    def on_shard(x: jax.Array, shard: jax.Array) -> jax.Array:
      whole = jax.lax.all_gather(shard, "fsdp", axis=split, tiled=True)
      return jnp.tensordot(x, whole, axes=summed)

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
