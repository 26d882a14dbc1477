"""The device programs of a training run, with their arguments as shapes.

A run starts or resumes with some of them, and has the others in every step.

Nothing is computed or compiled here: shapes and shardings are enough to lower
each program, even for devices that this machine does not have.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.typing import DTypeLike

from azr_jax import types
from azr_jax.learner import critic as critic_lib
from azr_jax.learner import learner as learner_lib
from azr_jax.learner import objective
from azr_jax.learner.train_state import TrainState
from azr_jax.models import pages, sampling_params, transformer
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout import (
  decode_state,
  layout,
  prefill_scheduler,
)
from azr_jax.rollout import engine as engine_lib
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.rollout.slots import no_changes
from azr_jax.trainer import build
from azr_jax.trainer.settings import TrainSettings

# Number of stop ids. Programs depend on their number, not on their values.
_NUM_STOP_IDS = 2


@dataclasses.dataclass(frozen=True)
class Program:
  """One device program.

  Attributes:
    name: of a step: weights, prefill or prefill_WIDTH, decode, score, estimate,
      critic, prepare or update; of a start: start_copy, start_critic,
      start_policy or restore.
    lower: traces the program; returns a `jax.stages.Lowered`. None: arrays are
      read, and no program runs.
    resident_bytes: bytes of a device that other arrays take while it runs.
    cache_bytes: bytes of all keys, or values, on a device; 0: the program has
      none.
  """

  name: str
  lower: Callable[[], jax.stages.Lowered] | None
  resident_bytes: float
  cache_bytes: float = 0.0


@dataclasses.dataclass(frozen=True)
class _Sampling:
  """The engine and its arguments, as shapes.

  Attributes:
    engine: the engine.
    params: what `engine.compute_params` returns.
    pool: keys and values in pages.
    slots: the largest slot count.
  """

  engine: engine_lib.Engine
  params: types.Params
  pool: pages.Pool
  slots: decode_state.Slots


def start_programs(
  c: TrainSettings, config: ModelConfig, mesh: Mesh
) -> list[Program]:
  """Returns what a run does before its first step: it starts, or restores.

  A fresh state takes over the parameters that were loaded; a critic's are a
  copy of them. A restored state is read straight into its shards, so nothing
  else is on a device.

  Args:
    c: a training configuration.
    config: the model's config.
    mesh: a mesh of real devices, or of those of a topology.
  """
  model = build.build_model(c, config, mesh, c.learner.max_sequences_per_row)
  learner = build.build_learner(c, model, mesh)
  state = learner.abstract
  policy, programs = state, []
  reference_bytes = device_bytes(_reference(c, learner))
  resident_bytes = reference_bytes
  if isinstance(state, critic_lib.ActorCritic):
    policy, critic = state.policy, state.critic
    copy, init_critic = learner.copy_to_critic, learner.init_critic
    assert copy is not None and init_critic is not None
    programs = [
      Program("start_copy", lambda: copy.lower(policy.params), resident_bytes),
      Program(
        "start_critic",
        lambda: init_critic.lower(critic.params),
        resident_bytes + device_bytes(policy.params),
      ),
    ]
    resident_bytes += device_bytes(critic)
  return [
    *programs,
    Program(
      "start_policy",
      lambda: learner.init_policy.lower(policy.params),
      resident_bytes,
    ),
    Program("restore", None, device_bytes(state) + reference_bytes),
  ]


def make_programs(
  c: TrainSettings, config: ModelConfig, mesh: Mesh
) -> list[Program]:
  """Returns the programs of a run, in the order of a step.

  A run with a critic also estimates advantages and updates the critic; one
  whose loss ranks the whole batch also prepares it.

  Args:
    c: a training configuration.
    config: the model's config.
    mesh: a mesh of real devices, or of those of a topology.
  """
  model = build.build_model(c, config, mesh, c.learner.max_sequences_per_row)
  learner = build.build_learner(c, model, mesh)
  state = learner.abstract
  critic = None
  if isinstance(state, critic_lib.ActorCritic):
    policy, critic = state.policy, state.critic
  else:
    policy = state
  batch = _abstract_batch(
    c.learner.max_micro_batches,
    mesh_lib.padded_rows(c.learner.micro_rows, mesh),
    c.learner.row_length,
    mesh,
  )
  ref_params = _reference(c, learner)
  other_bytes = device_bytes(critic) + device_bytes(ref_params)
  sampling = _abstract_sampling(c, model, mesh)
  programs = [
    _weights_program(
      sampling,
      policy.params,
      mesh,
      device_bytes(policy.opt_state) + other_bytes,
    ),
    *_sampling_programs(c, sampling, device_bytes(policy) + other_bytes),
  ]
  programs.append(
    Program(
      "score",
      _lower_score(c, model, policy.params, batch, mesh),
      device_bytes(policy.opt_state) + other_bytes,
    )
  )
  if critic is not None:
    policy_bytes = device_bytes(policy) + device_bytes(ref_params)
    programs += _critic_programs(learner, critic, batch, policy_bytes)
  if learner.prepare is not None:
    prepare, whole = learner.prepare, batch
    fields, _ = jax.eval_shape(prepare, policy.params, policy.step, whole)
    programs.append(
      Program(
        "prepare",
        lambda: prepare.lower(policy.params, policy.step, whole),
        device_bytes(policy.opt_state) + other_bytes,
      )
    )
    batch = batch.replace(
      **{name: _row_sharded(x, mesh) for name, x in fields.items()}
    )
  lower = learner.policy_update.lower
  programs.append(
    Program(
      "update", lambda: lower(policy, batch, ref_params), device_bytes(critic)
    )
  )
  return programs


def _row_sharded(x: jax.ShapeDtypeStruct, mesh: Mesh) -> Any:
  """Returns the shape of an array of a batch, laid out as `_abstract_batch`."""
  sharding = mesh_lib.token_sharding(mesh, axis=1)
  return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def _reference(
  c: TrainSettings, learner: learner_lib.Learner
) -> types.Params | None:
  """Returns the parameters of a KL penalty as shapes; None without one."""
  if not c.learner.kl_coef:
    return None
  params = learner.abstract.params
  made = jax.eval_shape(learner.make_reference, params)
  return _with_shardings(made, jax.tree.map(lambda x: x.sharding, params))


def prefill_name(settings: SamplerSettings, chunk: int) -> str:
  """Returns the name of the program that reads so many tokens of a row."""
  is_widest = chunk == settings.prefill_chunks[-1]
  return "prefill" if is_widest else f"prefill_{chunk}"


def _weights_program(
  sampling: _Sampling, params: types.Params, mesh: Mesh, other_bytes: float
) -> Program:
  """Returns what hands new parameters to the sampler.

  A run does it in one program, too, unless another mesh has changed the order
  of the devices; here they have the learner's.

  Args:
    sampling: the engine and its arguments.
    params: of the learner.
    mesh: the learner's mesh.
    other_bytes: bytes of the learner's other arrays on one device.
  """
  engine = sampling.engine
  ordered = Mesh(
    mesh.devices.reshape(engine.mesh.devices.shape),
    engine.mesh.axis_names,
    axis_types=engine.mesh.axis_types,
  )
  convert = jax.jit(
    functools.partial(sampling_params.convert, engine.model),
    out_shardings=jax.tree.map(
      lambda x: NamedSharding(ordered, x.spec), engine.param_shardings
    ),
  )
  return Program(
    "weights",
    lambda: convert.lower(params),
    # Pages of a stream that goes on are kept meanwhile.
    other_bytes + device_bytes(sampling.pool),
  )


def _sampling_programs(
  c: TrainSettings, sampling: _Sampling, train_bytes: float
) -> list[Program]:
  """Returns prefill of each length of chunk, and decode.

  Args:
    c: a training configuration.
    sampling: the engine and its arguments.
    train_bytes: bytes of the learner's arrays on one device.
  """
  engine, params = sampling.engine, sampling.params
  pool, slots = sampling.pool, sampling.slots
  cache_bytes = device_bytes(pool.k)

  def prefill(chunk: int) -> Program:
    batch = _shapes_of(prefill_scheduler.empty_batch(engine, chunk))
    return Program(
      prefill_name(c.rollout, chunk),
      lambda: engine.prefill.lower(params, pool, batch),
      train_bytes + device_bytes(slots),
      cache_bytes,
    )

  num_slots = engine.slot_counts[0]
  nothing = no_changes(num_slots, engine.devices, engine.max_pages_per_row)

  def decode(name: str, context: jax.ShapeDtypeStruct | None) -> Program:
    return Program(
      name,
      lambda: engine.decode.lower(
        params,
        pool,
        slots,
        _shapes_of(nothing).replace(context=context),
        _ints(_NUM_STOP_IDS),
        _ints(),
      ),
      train_bytes,
      cache_bytes,
    )

  programs = [*map(prefill, reversed(engine.prefill_chunks))]
  programs.append(decode("decode", None))
  speculation = c.rollout.speculation
  if speculation.drafts:
    programs.append(
      decode("decode_drafts", _ints(num_slots, speculation.context))
    )
  return programs


def _shapes_of(tree: Any) -> Any:
  """Returns a tree of arrays of the host as shapes."""
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def _lower_score(
  c: TrainSettings,
  model: transformer.Transformer,
  params: types.Params,
  batch: types.Batch,
  mesh: Mesh,
) -> Callable[[], jax.stages.Lowered]:
  """Returns a function that lowers the scoring of one micro-batch."""
  micro = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(
      x.shape[1:], x.dtype, sharding=mesh_lib.token_sharding(mesh)
    ),
    batch,
  )

  def score(params: types.Params, batch: types.Batch) -> Any:
    return objective.score(
      model,
      params,
      batch,
      c.rollout.temperature,
      c.learner.chunk_tokens,
      mesh,
    )

  options = c.compiler.options(mesh)
  return lambda: jax.jit(score, compiler_options=options).lower(params, micro)


def _critic_programs(
  learner: learner_lib.Learner,
  critic: TrainState,
  batch: types.Batch,
  policy_bytes: float,
) -> list[Program]:
  """Returns the programs that estimate advantages and update the critic."""
  estimate, critic_update = learner.estimate, learner.critic_update
  assert estimate is not None and critic_update is not None
  values = batch.advantages
  valued = critic_lib.ValueBatch(batch, values, values)
  return [
    Program(
      "estimate",
      lambda: estimate.lower(critic.params, batch),
      policy_bytes + device_bytes(critic.opt_state),
    ),
    Program(
      "critic", lambda: critic_update.lower(critic, valued), policy_bytes
    ),
  ]


def _ints(*shape: int) -> Any:
  """Returns the shape of an int32 array, to be given in its place."""
  return jax.ShapeDtypeStruct(shape, jnp.int32)


def _abstract_batch(
  micro_batches: int, rows: int, length: int, mesh: Mesh
) -> types.Batch:
  """Returns micro-batches [A, rows, length] as shapes."""
  sharding = mesh_lib.token_sharding(mesh, axis=1)

  def array(dtype: DTypeLike) -> Any:
    shape = (micro_batches, rows, length)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

  return types.Batch(
    *[array(jnp.int32)] * 4,
    *[array(jnp.float32)] * 6,
  )


def _abstract_sampling(
  c: TrainSettings, model: transformer.Transformer, mesh: Mesh
) -> _Sampling:
  """Returns the engine and its arguments as shapes."""
  engine = engine_lib.make_engine(
    model,
    layout.rollout_mesh(c.rollout.mesh, mesh),
    c.sharding.rules(),
    c.rollout,
  )
  params = jax.eval_shape(
    lambda key: sampling_params.convert(
      engine.model, transformer.init_params(model, key)
    ),
    jax.random.key(0),
  )
  pool = jax.eval_shape(engine.init_pool)
  # The number of slots is a constant of the program.
  slots = jax.eval_shape(lambda: decode_state.init_slots(engine.slot_counts[0]))
  return _Sampling(
    engine,
    _with_shardings(params, engine.param_shardings),
    _with_shardings(pool, jax.tree.map(lambda _: engine.pool_sharding, pool)),
    _with_shardings(
      slots, jax.tree.map(lambda _: engine.slots_sharding, slots)
    ),
  )


def _with_shardings(shapes: Any, shardings: Any) -> Any:
  """Returns a tree of shapes with a sharding for each."""
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=sharding
    ),
    shapes,
    shardings,
  )


def device_bytes(tree: Any) -> float:
  """Returns the bytes of a tree of shapes on one device; 0 for None."""

  def of(leaf: Any) -> float:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      return 8.0 * np.prod(leaf.shape)
    shape = leaf.sharding.shard_shape(leaf.shape)
    return float(np.prod(shape) * leaf.dtype.itemsize)

  return float(sum(map(of, jax.tree.leaves(tree))))
