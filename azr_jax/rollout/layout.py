"""How the devices lie that sample: as the learner's, or with copies.

A device that holds a part of a kernel gathers the rest for each token that it
samples. Training gathers once for thousands of tokens and does not mind, so
sampling often does better with whole copies of the weights.
"""

import functools
import math
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import Mesh

from azr_jax.models import sampling_params, transformer
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import engine as engine_lib
from azr_jax.rollout.engine import Engine
from azr_jax.rollout.settings import RolloutMeshSettings, SamplerSettings
from azr_jax.types import Rules

# The part of a device that loaded parameters, a copy of the weights and the
# cache may take together. The rest is for what programs need while they run.
MAX_HELD = 0.85


def rollout_mesh(c: RolloutMeshSettings, mesh: Mesh) -> Mesh:
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
  return mesh_lib.make_mesh(
    sizes, mesh.devices.flatten().tolist(), "config.rollout.mesh"
  )


def rollout_mesh_with_copies(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Rules,
  settings: SamplerSettings,
) -> Mesh:
  """Returns the mesh of commands that only sample: copies of the weights.

  It is that of `rollout_mesh`, unless neither it nor `mesh` was set: then each
  copy of the weights lies over the fewest devices that have room for it, for
  the cache, and for the parameters that were loaded.

  Args:
    model: the decoder of training.
    mesh: where the parameters are loaded; over `fsdp` alone: not set.
    rules: logical parameter axis to mesh axis.
    settings: shapes and rules of sampling.

  Raises:
    ValueError: the sizes do not multiply to the devices, or the cache has no
      room for the longest sequence.
  """
  own = rollout_mesh(settings.mesh, mesh)
  is_set = any(settings.mesh.sizes().values()) or mesh.shape["fsdp"] < mesh.size
  if is_set or mesh.size == 1:
    return own
  limit = device_bytes()
  if limit is None:
    return own
  loaded = mesh_lib.sharded_shapes(
    transformer.abstract_params(model), mesh, rules
  )
  room = MAX_HELD * limit - shard_bytes(loaded)
  for tensor in range(1, mesh.size + 1):
    if mesh.size % tensor:
      continue
    sizes = {"data": mesh.size // tensor, "tensor": tensor}
    copies = mesh_lib.make_mesh(sizes, mesh.devices.flatten().tolist())
    engine = engine_lib.make_engine(model, copies, rules, settings)
    if held_bytes(engine) <= room:
      return copies
  return own


def held_bytes(engine: Engine) -> int:
  """Returns the bytes of weights and cache on each device of an engine."""
  return weight_bytes(engine) + cache_bytes(engine)


def weight_bytes(engine: Engine) -> int:
  """Returns the bytes of the weights on each device of an engine."""
  unfused = engine.model.clone(fused=False, unrolled=False, kernel_dtype=None)
  params = jax.eval_shape(
    functools.partial(sampling_params.convert, engine.model),
    nn.unbox(transformer.abstract_params(unfused)),
  )
  return _shard_bytes(params, engine.param_shardings)


def cache_bytes(engine: Engine) -> int:
  """Returns the bytes of the cache on each device of an engine."""
  pool = jax.eval_shape(engine.init_pool)
  return _shard_bytes(pool, jax.tree.map(lambda _: engine.pool_sharding, pool))


def shard_bytes(arrays: Any) -> int:
  """Returns the bytes on each device of shapes that have their shardings."""
  return _shard_bytes(arrays, jax.tree.map(lambda x: x.sharding, arrays))


def _shard_bytes(arrays: Any, shardings: Any) -> int:
  """Returns the bytes of some arrays' shapes on each device."""
  parts = jax.tree.map(
    lambda x, s: math.prod(s.shard_shape(x.shape)) * x.dtype.itemsize,
    arrays,
    shardings,
  )
  return sum(jax.tree.leaves(parts))


def device_bytes() -> int | None:
  """Returns the memory of the smallest device; None if unknown.

  All processes of a run must call it, and get the same.
  """
  stats = memory.device_stats(jax.local_devices()[0])
  return memory.least_of_hosts(stats.get("bytes_limit"))
