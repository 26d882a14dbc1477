"""The device mesh, and the rules from logical parameter axes to mesh axes."""

from collections.abc import Mapping, Sequence

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from azr_jax.types import BoxedParams, Params, Rules, Shardings

AXES = ("data", "fsdp", "expert", "tensor", "context")
# Axes that split rows. Devices along `expert` also share a layer's experts.
BATCH_AXES = ("data", "fsdp", "expert")
# The layout of a training array [B, S, ...]; a row may span several devices.
TOKENS = PartitionSpec(BATCH_AXES, "context")


def make_mesh(
  shape: Mapping[str, int],
  devices: Sequence[jax.Device] | None = None,
  section: str = "config.mesh",
) -> Mesh:
  """Makes the mesh with the axes `AXES`.

  Args:
    shape: the size of each axis. One may be -1 to use the remaining devices. A
      missing axis has size 1.
    devices: the devices of the mesh; None uses all.
    section: the section that sets the sizes, for the error.

  Raises:
    ValueError: the sizes do not multiply to the number of devices.
  """
  devices = jax.devices() if devices is None else devices
  sizes = [shape.get(axis, 1) for axis in AXES]
  if sizes.count(-1) == 1:
    known = -int(np.prod(sizes))
    sizes[sizes.index(-1)] = len(devices) // known
  if min(sizes) < 1 or int(np.prod(sizes)) != len(devices):
    raise ValueError(
      f"{section}={dict(shape)}: expected sizes that multiply to the "
      f"{len(devices)} devices present (one size may be -1)"
    )
  return jax.make_mesh(
    tuple(sizes), AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices
  )


def sharded_shapes(
  boxed_params: BoxedParams, mesh: Mesh, rules: Rules
) -> Params:
  """Returns a `jax.ShapeDtypeStruct` with its sharding for each parameter.

  Args:
    boxed_params: shapes with logical axis names.
    mesh: the device mesh.
    rules: logical axis name -> mesh axis name, or None to replicate.
  """
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=sharding
    ),
    nn.unbox(boxed_params),
    param_shardings(boxed_params, mesh, rules),
  )


def param_shardings(
  boxed_params: BoxedParams, mesh: Mesh, rules: Rules
) -> Shardings:
  """Maps each parameter's logical axes to the mesh.

  Args:
    boxed_params: shapes with logical axis names.
    mesh: the device mesh.
    rules: logical axis name -> mesh axis name, or None to replicate.

  Returns:
    The same tree with a `NamedSharding` per parameter. An axis that the mesh
    axis does not divide evenly is replicated, so odd sizes do not fail.
  """

  def shard(box: nn.LogicallyPartitioned) -> NamedSharding:
    spec = param_spec(box.names, box.value.shape, mesh, rules)
    return NamedSharding(mesh, spec)

  return jax.tree.map(
    shard, boxed_params, is_leaf=lambda x: isinstance(x, nn.meta.AxisMetadata)
  )


def param_spec(
  names: Sequence[str | None], shape: Sequence[int], mesh: Mesh, rules: Rules
) -> PartitionSpec:
  """Returns a parameter's partition spec, as for `param_shardings`.

  Args:
    names: the logical name of each axis.
    shape: the size of each axis.
    mesh: the device mesh.
    rules: logical axis name -> mesh axis name, or None to replicate.
  """
  axes: list[str | None] = []
  for name, size in zip(names, shape, strict=True):
    axis = rules[name] if name else None
    is_usable = (
      axis is not None and axis not in axes and size % mesh.shape[axis] == 0
    )
    axes.append(axis if is_usable else None)
  return PartitionSpec(*axes)


def fitting(sharding: NamedSharding, shape: Sequence[int]) -> NamedSharding:
  """Returns a sharding without the splits that an array's shape cannot have.

  Args:
    sharding: the sharding of an array with as many axes. Each axis is split
      over at most one axis of the mesh, as by `param_spec`.
    shape: the array's shape.
  """
  sizes = sharding.mesh.shape
  axes = [
    axis if axis is None or size % sizes[axis] == 0 else None
    for axis, size in zip(sharding.spec, shape, strict=False)
  ]
  return NamedSharding(sharding.mesh, PartitionSpec(*axes))


def replicated(mesh: Mesh) -> NamedSharding:
  """Returns the sharding of a value that is replicated on every device."""
  return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: Mesh, axis: int = 0) -> NamedSharding:
  """Returns the sharding that splits `axis` of an array by `BATCH_AXES`."""
  return NamedSharding(mesh, PartitionSpec(*([None] * axis), BATCH_AXES))


def token_sharding(mesh: Mesh, axis: int = 0) -> NamedSharding:
  """Returns the sharding of a training array [..., B, S].

  Args:
    mesh: the device mesh.
    axis: index of the B axis.
  """
  return NamedSharding(mesh, PartitionSpec(*([None] * axis), *TOKENS))


def cache_sharding(mesh: Mesh, kv_heads: int) -> NamedSharding:
  """Returns the sharding of a pool's keys or values, by page and by head.

  The arrays are [L, P, K, E, C] or [L, P, K, C, E].

  Args:
    mesh: the device mesh.
    kv_heads: K; replicated over `tensor` unless its size divides K.
  """
  heads = "tensor" if kv_heads % mesh.shape["tensor"] == 0 else None
  return NamedSharding(mesh, PartitionSpec(None, BATCH_AXES, heads))


def platform(mesh: Mesh) -> str:
  """Returns the platform of a mesh's devices: cpu, gpu or tpu."""
  return mesh.devices.flat[0].platform


def batch_devices(mesh: Mesh) -> int:
  """Returns the number of shards that a batch axis is split into."""
  return int(np.prod([mesh.shape[axis] for axis in BATCH_AXES]))


def padded_rows(rows: int, mesh: Mesh) -> int:
  """Returns `rows` rounded up to a multiple of the batch shards."""
  return rows + -rows % batch_devices(mesh)
