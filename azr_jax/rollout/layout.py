"""How the devices lie that sample: as the learner's, or with copies.

A device that holds a part of a kernel gathers the rest for each token that it
samples. Training gathers once for thousands of tokens and does not mind, so
sampling often does better with whole copies of the weights.
"""

import jax
from jax.sharding import Mesh

from azr_jax.models import transformer
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.settings import RolloutMeshSettings

# A copy may take this part of a device; the rest is for the cache, and for the
# shards that the copy is made from.
_MAX_WEIGHTS = 1 / 3


def shape(c: RolloutMeshSettings, mesh: Mesh) -> Mesh:
  """Returns the mesh to sample on: the learner's devices, perhaps reshaped.

  No sampled row lies on several devices, so `context` becomes part of `data`.

  Args:
    c: the sizes; all 0: those of the learner.
    mesh: of the learner.

  Raises:
    ValueError: the sizes do not multiply to the devices.
  """
  sizes = c.sizes()
  if not any(sizes.values()):
    context = mesh.shape["context"]
    if context == 1:
      return mesh
    sizes = dict(mesh.shape) | {
      "data": mesh.shape["data"] * context,
      "context": 1,
    }
  return mesh_lib.make_mesh(sizes, mesh.devices.flatten().tolist())


def shape_without_learner(
  c: RolloutMeshSettings, mesh: Mesh, model: transformer.Transformer
) -> Mesh:
  """Returns the mesh to sample on where nothing is trained.

  It is that of `shape`, unless neither it nor the mesh was set: then there are
  as many copies of the weights as fit.

  Args:
    c: the sizes; all 0: not set.
    mesh: where the parameters are loaded; over `fsdp` alone: not set.
    model: the decoder, whose weights are sampled with in its dtype.

  Raises:
    ValueError: the sizes do not multiply to the devices.
  """
  total = device_bytes()
  is_set = any(c.sizes().values()) or mesh.shape["fsdp"] < mesh.size
  if is_set or not total:
    return shape(c, mesh)
  params = jax.tree.leaves(transformer.abstract_params(model))
  weights = sum(leaf.size for leaf in params) * model.dtype.itemsize
  tensor = devices_per_copy(weights, total, mesh.size)
  if tensor is None:
    return shape(c, mesh)
  sizes = {"data": mesh.size // tensor, "tensor": tensor}
  return mesh_lib.make_mesh(sizes, mesh.devices.flatten().tolist())


def device_bytes() -> int:
  """Returns the memory of a device, or 0 if it does not say."""
  stats = jax.local_devices()[0].memory_stats()
  return (stats or {}).get("bytes_limit", 0)


def devices_per_copy(
  weights: int, device_bytes: int, devices: int
) -> int | None:
  """Returns the fewest devices that hold a copy of the weights together.

  Args:
    weights: bytes of the weights.
    device_bytes: memory of a device.
    devices: the number of devices, of which a copy takes a divisor.

  Returns:
    None if all of them together are too small.
  """
  for count in range(1, devices + 1):
    fits = weights / count <= _MAX_WEIGHTS * device_bytes
    if fits and devices % count == 0:
      return count
  return None
