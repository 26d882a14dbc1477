"""The sampling mesh: the learner's layout, or copies of the weights.

A device that holds part of a kernel must gather the rest for every token it
samples. Training gathers once for thousands of tokens, where the cost does not
matter, but sampling is often faster with whole copies of the weights.
"""

import functools
import math
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import Mesh

from azr_jax.models import adapters, sampling_params, transformer
from azr_jax.models.config import ExpertShape
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.build import build_engine
from azr_jax.rollout.engine import Engine, stacks_layers
from azr_jax.rollout.settings import RolloutMeshSettings, SamplerSettings
from azr_jax.types import Params, Rules

# The fraction of device memory that loaded parameters, a copy of the weights
# and the KV cache may take together. The rest is left for running programs.
MAX_HELD = 0.85


def rollout_mesh(
  settings: RolloutMeshSettings,
  mesh: Mesh,
  experts: ExpertShape | None = None,
) -> Mesh:
  """Returns the mesh to sample on: the learner's devices, perhaps reshaped.

  A sampled row lies on one device, so the `context` axis is folded into `data`.
  Experts that are split along the model width would be gathered for each token,
  so the `fsdp` axis is folded into `expert` if it divides their number.

  Args:
    settings: the axis sizes; all 0 uses the learner's.
    mesh: the learner's mesh.
    experts: the experts of a layer, if it has any.

  Raises:
    ValueError: the sizes do not multiply to the number of devices.
  """
  sizes = settings.sizes()
  if not any(sizes.values()):
    axes = mesh.shape
    sizes = dict(axes) | {"data": axes["data"] * axes["context"], "context": 1}
    shards = axes["fsdp"] * axes["expert"]
    if experts is not None and experts.count % shards == 0:
      sizes |= {"fsdp": 1, "expert": shards}
    if sizes == dict(axes):
      return mesh
  return mesh_lib.make_mesh(
    sizes, mesh.devices.flatten().tolist(), "config.rollout.mesh"
  )


def rollout_mesh_with_copies(
  model: transformer.Transformer,
  mesh: Mesh,
  rules: Rules,
  settings: SamplerSettings,
) -> Mesh:
  """Returns the mesh for commands that only sample, with copies of the weights.

  If neither `settings.mesh` nor `mesh` was configured, each copy of the weights
  is split over the fewest devices with room for it, the cache and the loaded
  parameters. Otherwise it is the mesh of `rollout_mesh`.

  Args:
    model: the training decoder.
    mesh: the mesh of the loaded parameters; a mesh over `fsdp` alone counts as
      not configured.
    rules: logical parameter axis -> mesh axis.
    settings: shapes and rules of sampling.

  Raises:
    ValueError: the sizes do not multiply to the number of devices, or the cache
      has no room for the longest sequence.
  """
  own = rollout_mesh(settings.mesh, mesh, model.config.experts)
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
  # Experts are too narrow to be split themselves.
  experts = model.config.experts
  axis = "tensor" if experts is None else "expert"
  for parts in range(1, mesh.size + 1):
    if mesh.size % parts or (experts is not None and experts.count % parts):
      continue
    sizes = {"data": mesh.size // parts, axis: parts}
    copies = mesh_lib.make_mesh(sizes, mesh.devices.flatten().tolist())
    engine = build_engine(model, copies, rules, settings)
    if held_bytes(engine) <= room:
      return copies
  return own


def held_bytes(engine: Engine) -> int:
  """Returns the bytes of weights and cache on each of an engine's devices."""
  return weight_bytes(engine) + cache_bytes(engine)


def weight_bytes(engine: Engine) -> int:
  """Returns the bytes of the weights on each of an engine's devices.

  A base that the learner holds anyway is left out.
  """
  params, shardings = _weights(engine), engine.param_shardings
  if engine.shares_base:
    params, shardings = map(adapters.adapters_of, (params, shardings))
  return _shard_bytes(params, shardings)


def stacked_bytes(engine: Engine) -> int:
  """Returns the bytes per device of the layers that each prefill copies."""
  if not stacks_layers(engine.model, mesh_lib.platform(engine.mesh)):
    return 0
  params, shardings = (
    {k: v for k, v in tree.items() if k.startswith(f"{transformer.LAYERS}_")}
    for tree in (_weights(engine), engine.param_shardings)
  )
  return _shard_bytes(params, shardings)


def _weights(engine: Engine) -> Params:
  """Returns the shapes of the sampler's parameters."""
  return jax.eval_shape(
    functools.partial(sampling_params.convert, engine.model),
    nn.unbox(transformer.abstract_params(transformer.plain(engine.model))),
  )


def cache_bytes(engine: Engine) -> int:
  """Returns the bytes of the cache on each of an engine's devices."""
  pool = jax.eval_shape(engine.init_pool)
  return _shard_bytes(pool, jax.tree.map(lambda _: engine.pool_sharding, pool))


def shard_bytes(arrays: Any) -> int:
  """Returns the bytes per device of abstract arrays that have shardings."""
  return _shard_bytes(arrays, jax.tree.map(lambda x: x.sharding, arrays))


def _shard_bytes(arrays: Any, shardings: Any) -> int:
  """Returns the bytes per device of arrays with the given shardings."""
  parts = jax.tree.map(
    lambda x, s: math.prod(s.shard_shape(x.shape)) * x.dtype.itemsize,
    arrays,
    shardings,
  )
  return sum(jax.tree.leaves(parts))


def device_bytes() -> int | None:
  """Returns the memory of the smallest device; None if unknown.

  All processes of a run must call it; all get the same value.
  """
  stats = memory.device_stats(jax.local_devices()[0])
  return memory.least_of_hosts(stats.get("bytes_limit"))
