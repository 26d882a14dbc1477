"""Ahead-of-time compilation of every device program, and what each needs."""

import dataclasses
import re
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from jax.sharding import Mesh

from azr_jax import types
from azr_jax.learner import critic as critic_lib
from azr_jax.learner import learner as learner_lib
from azr_jax.learner import train_state, update
from azr_jax.models import transformer
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.perf import hlo
from azr_jax.rollout import engine as programs_lib
from azr_jax.trainer import build as parts

# Ids that end a completion; their number is a shape, their values are not.
_STOP_IDS = 2
_OVERFLOW = re.compile(r"Used ([\d.]+)([GMK]) of ([\d.]+)([GMK]) hbm")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclasses.dataclass(frozen=True)
class Compiled:
  """One program on one device of the mesh.

  Attributes:
    name: prefill, fill, decode, score, estimate, critic or update.
    program_bytes: arguments, results and scratch, at once.
    resident_bytes: what else lies in memory while it runs.
    flops: as the compiler counts them, each loop's body once.
    bytes: read and written, counted likewise.
    collectives: see `hlo.collectives`.
    compile_s: seconds.
    overflow: the compiler found no way to fit it.
  """

  name: str
  program_bytes: float
  resident_bytes: float
  flops: float
  bytes: float
  collectives: dict[str, hlo.Collective]
  compile_s: float
  overflow: bool

  @property
  def peak_bytes(self) -> float:
    """Memory of the device while the program runs."""
    return self.program_bytes + self.resident_bytes


def compile_all(
  config: ml_collections.ConfigDict, shape: ModelConfig, mesh: Mesh
) -> list[Compiled]:
  """Compiles prefill, fill, decode, score and update for a mesh's devices.

  With a critic, also what estimates advantages and what learns it.

  Args:
    config: a training config.
    shape: the model's.
    mesh: of real devices, or of a topology's.
  """
  rules = parts.sharding_rules(config)
  model = parts.build_model(config, shape, mesh)
  learner = parts.build_learner(config, model, mesh)
  both = learner.abstract
  has_critic = learner.critic_update is not None
  state = both.policy if has_critic else both
  critic_bytes = _device_bytes(both.critic) if has_critic else 0.0
  rows = mesh_lib.padded_rows(config.learner.micro_rows, mesh)
  batch = _abstract_batch(
    config.learner.max_micro_batches,
    rows,
    config.learner.row_length,
    mesh,
  )
  ref_params = state.params if config.learner.kl_coef else None
  reference = _device_bytes(ref_params)
  sampling = _sampling_arguments(config, model, mesh, rules)
  programs = sampling["programs"]
  params = sampling["params"]
  prompts, slots = sampling["prompts"], sampling["slots"]
  train_bytes = _device_bytes(state) + critic_bytes + reference
  bucket = config.rollout.prompt_buckets[-1]
  place = jax.ShapeDtypeStruct((), jnp.int32)
  together = programs.together(bucket)
  micro = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(
      x.shape[1:], x.dtype, sharding=mesh_lib.batch_sharding(mesh)
    ),
    batch,
  )

  def score(params: Any, batch: types.Batch) -> Any:
    return update.score(
      model,
      params,
      batch,
      config.rollout.temperature,
      config.learner.chunk_tokens,
      mesh,
    )

  found = [
    _compile(
      "prefill",
      lambda: programs.prefill.lower(
        params,
        prompts,
        _numbers(together, programs.prefill_size(bucket)),
        place,
        _numbers(together),
      ),
      train_bytes + _device_bytes(slots),
    ),
    _compile(
      "fill",
      lambda: programs.fill_slots.lower(
        slots,
        prompts,
        _numbers(together),
        *[_numbers(programs.sizes[0])] * 2,
        _numbers(programs.sizes[0], 2),
        jax.eval_shape(lambda: jax.random.key(0)),
      ),
      train_bytes + _device_bytes(params),
    ),
    _compile(
      "decode",
      lambda: programs.decode.lower(
        params,
        slots,
        _numbers(_STOP_IDS),
        jax.ShapeDtypeStruct((programs.sizes[0],), bool),
        place,
      ),
      train_bytes + _device_bytes(prompts),
    ),
    _compile(
      "score",
      lambda: jax.jit(score).lower(state.params, micro),
      _device_bytes(state.opt_state) + critic_bytes + reference,
    ),
  ]
  if has_critic:
    found += _compile_critic(
      learner, both.critic, batch, _device_bytes(state) + reference
    )
  return [
    *found,
    _compile(
      "update",
      lambda: learner.policy_update.lower(state, batch, ref_params),
      critic_bytes,
    ),
  ]


def _compile_critic(
  learner: learner_lib.Learner,
  critic: train_state.TrainState,
  batch: types.Batch,
  policy_bytes: float,
) -> list[Compiled]:
  """The programs that make advantages and that learn the critic."""
  assert learner.estimate is not None and learner.critic_update is not None
  estimate, critic_update = learner.estimate, learner.critic_update
  values = batch.advantages
  valued = critic_lib.ValueBatch(batch, values, values)
  return [
    _compile(
      "estimate",
      lambda: estimate.lower(critic.params, batch),
      policy_bytes + _device_bytes(critic.opt_state),
    ),
    _compile(
      "critic", lambda: critic_update.lower(critic, valued), policy_bytes
    ),
  ]


def _numbers(*shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, jnp.int32)


def _abstract_batch(
  micro_batches: int, rows: int, length: int, mesh: Mesh
) -> types.Batch:
  sharding = mesh_lib.batch_sharding(mesh, axis=1)

  def array(dtype: Any) -> jax.ShapeDtypeStruct:
    shape = (micro_batches, rows, length)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

  return types.Batch(
    *[array(jnp.int32)] * 4,
    *[array(jnp.float32)] * 6,
  )


def _sampling_arguments(
  config: ml_collections.ConfigDict,
  model: transformer.Transformer,
  mesh: Mesh,
  rules: dict[str, str | None],
) -> dict[str, Any]:
  """Programs of sampling, and what they are given, as shapes."""
  programs = programs_lib.make_programs(
    model,
    parts.rollout_mesh(config, mesh),
    rules,
    parts.sampler_settings(config),
  )
  bucket = config.rollout.prompt_buckets[-1]
  params = jax.eval_shape(
    lambda key: transformer.compute_params(
      model.dtype, transformer.init_params(model, key)
    ),
    jax.random.key(0),
  )
  prompts = jax.eval_shape(
    lambda: programs.empty_prompts(programs.together(bucket), bucket)
  )
  slots = jax.eval_shape(lambda: programs.empty_slots())
  return {
    "programs": programs,
    "params": _laid_out(params, programs.param_shardings),
    "prompts": _laid_out(prompts, programs.prompt_shardings),
    "slots": _laid_out(slots, programs.slot_shardings),
  }


def _laid_out(shapes: Any, shardings: Any) -> Any:
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=sharding
    ),
    shapes,
    shardings,
  )


def _device_bytes(tree: Any) -> float:
  """Bytes of a tree of shapes on one device."""

  def of(leaf: jax.ShapeDtypeStruct) -> float:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      return 8.0 * np.prod(leaf.shape)
    shape = leaf.sharding.shard_shape(leaf.shape)
    return float(np.prod(shape) * leaf.dtype.itemsize)

  return sum(map(of, jax.tree.leaves(tree)), 0.0)


def _compile(
  name: str, lower: Callable[[], Any], resident_bytes: float
) -> Compiled:
  start = time.perf_counter()
  try:
    program = lower().compile()
  except jax.errors.JaxRuntimeError as error:
    overflow = _OVERFLOW.search(str(error))
    if overflow is None:
      raise
    used = float(overflow.group(1)) * _UNITS[overflow.group(2)]
    seconds = time.perf_counter() - start
    return Compiled(name, used, resident_bytes, 0, 0, {}, seconds, True)
  seconds = time.perf_counter() - start
  memory = program.memory_analysis()
  costs = program.cost_analysis() or {}
  return Compiled(
    name=name,
    program_bytes=memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.temp_size_in_bytes
    + memory.generated_code_size_in_bytes,
    resident_bytes=resident_bytes,
    flops=costs.get("flops", 0.0),
    bytes=costs.get("bytes accessed", 0.0),
    collectives=hlo.collectives(program.as_text()),
    compile_s=seconds,
    overflow=False,
  )
