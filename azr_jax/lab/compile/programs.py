"""The device programs of a training run, with abstract arguments.

Some run once when training starts or resumes, the others in every step.

Nothing is computed or compiled here: shapes and shardings are enough to lower
each program, even for devices that this machine does not have.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike

from azr_jax import types
from azr_jax.lab.compile import abstract, sampling_programs
from azr_jax.lab.compile.abstract import Program, device_bytes
from azr_jax.learner import critic as critic_lib
from azr_jax.learner import learner as learner_lib
from azr_jax.learner import objective, packing
from azr_jax.learner.actor_critic import ActorCritic
from azr_jax.learner.train_state import TrainState
from azr_jax.models import transformer
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.trainer import decoders, learner_parts, teachers
from azr_jax.trainer.settings import TrainSettings


def start_programs(
  c: TrainSettings, config: ModelConfig, mesh: Mesh
) -> list[Program]:
  """Returns the programs before a run's first step: start or restore.

  A new state takes over the loaded parameters; a critic starts from a copy of
  them. A restored state is read straight into its shards, so nothing else is
  on a device.

  Args:
    c: a training configuration.
    config: the model's config.
    mesh: a mesh of real devices, or of the devices of a topology.
  """
  _, learner, fixed = _built(c, config, mesh)
  state = learner.abstract
  policy, programs = state, []
  resident_bytes = device_bytes(fixed)
  if isinstance(state, ActorCritic):
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
    Program("restore", None, device_bytes((state, fixed))),
  ]


def make_programs(
  c: TrainSettings, config: ModelConfig, mesh: Mesh
) -> list[Program]:
  """Returns the programs of a training step, in execution order.

  A run with a critic also estimates advantages and updates the critic. A run
  whose loss needs whole-batch statistics also prepares the batch.

  Args:
    c: a training configuration.
    config: the model's config.
    mesh: a mesh of real devices, or of the devices of a topology.
  """
  model, learner, fixed = _built(c, config, mesh)
  state = learner.abstract
  critic = None
  if isinstance(state, ActorCritic):
    policy, critic = state.policy, state.critic
  else:
    policy = state
  batch = _abstract_batch(
    c.learner.max_micro_batches,
    mesh_lib.padded_rows(c.learner.micro_rows, mesh),
    *(c.learner.row_length, mesh, learner_parts.replay_of(c, model.config)),
    c.teacher_row_length,
  )
  whole = fixed.whole(policy.params)
  others = fixed.reference, fixed.teacher
  other_bytes = device_bytes((critic, others))
  sampling = sampling_programs.abstract_sampling(c, model, mesh)
  # A base that the sampler shares is among its parameters.
  own_bytes = device_bytes(fixed.base)
  own_bytes *= not sampling.engine.shares_base
  opt_bytes = device_bytes(policy.opt_state) + other_bytes
  programs = [
    sampling_programs.weights(sampling, whole, mesh, opt_bytes),
    *sampling_programs.make(
      c, sampling, device_bytes(policy) + own_bytes + other_bytes
    ),
  ]
  score = _lower_score(c, model, whole, batch, mesh)
  programs.append(Program("score", score, opt_bytes))
  if critic is not None:
    policy_bytes = device_bytes((policy, others))
    uses_reference = c.learner.kl_reward_coef > 0
    programs += _critic_programs(
      learner, critic, batch, fixed, policy_bytes, uses_reference
    )
  if learner.prepare is not None:
    prepare, unprepared = learner.prepare, batch
    fields, _ = jax.eval_shape(prepare, whole, policy.step, unprepared)
    programs.append(
      Program(
        "prepare",
        lambda: prepare.lower(whole, policy.step, unprepared),
        opt_bytes,
      )
    )
    batch = batch.replace(
      **{name: _row_sharded(x, mesh) for name, x in fields.items()}
    )
  lower = learner.policy_update.lower
  part = []
  if c.learner.minibatches > 1:
    part = [jax.ShapeDtypeStruct((), jnp.int32)]
    batch = batch.replace(minibatch=batch.tokens)
  programs.append(
    Program(
      "update",
      lambda: lower(policy, batch, fixed, *part),
      device_bytes(critic),
    )
  )
  return programs


def _built(
  c: TrainSettings, config: ModelConfig, mesh: Mesh
) -> tuple[transformer.Transformer, learner_lib.Learner, objective.Fixed]:
  """Returns decoder and learner, and the abstract parameters beside them."""
  teacher, params = teachers.build(
    c, teachers.config_of(c.distill, c.model.cache_dir), mesh
  )
  model = decoders.build_policy_model(c, config, mesh, params)
  learner = learner_parts.build_learner(c, model, mesh, teacher)
  fixed = objective.Fixed(learner.base, _reference(c, learner), params)
  return model, learner, fixed


def _row_sharded(x: jax.ShapeDtypeStruct, mesh: Mesh) -> Any:
  """Returns an array's shape, sharded like `_abstract_batch`."""
  sharding = mesh_lib.token_sharding(mesh, axis=1)
  return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def _reference(
  c: TrainSettings, learner: learner_lib.Learner
) -> types.Params | None:
  """Returns the abstract parameters that training starts from, if kept."""
  if not c.keeps_reference:
    return None
  params = learner.abstract.params
  made = jax.eval_shape(learner.make_reference, params)
  return abstract.with_shardings(
    made, jax.tree.map(lambda x: x.sharding, params)
  )


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
  fixed: objective.Fixed,
  policy_bytes: float,
  uses_reference: bool,
) -> list[Program]:
  """Returns the programs that estimate advantages and update the critic."""
  estimate, critic_update = learner.estimate, learner.critic_update
  assert estimate is not None and critic_update is not None
  values = batch.advantages
  assert values is not None
  valued = critic_lib.ValueBatch(batch, values, values)
  rewarded = batch.replace(advantages=None, rewards=values)
  reference = ()
  if uses_reference:
    assert fixed.reference is not None
    reference = (fixed.whole(fixed.reference),)
  return [
    Program(
      "estimate",
      lambda: estimate.lower(fixed.whole(critic.params), rewarded, *reference),
      policy_bytes + device_bytes(critic.opt_state),
    ),
    Program(
      "critic",
      lambda: critic_update.lower(critic, valued, fixed),
      policy_bytes,
    ),
  ]


def _abstract_batch(
  micro_batches: int,
  rows: int,
  length: int,
  mesh: Mesh,
  replay: packing.RouterReplay | None,
  teacher_length: int,
) -> types.Batch:
  """Returns an abstract batch of micro-batches [A, B, S]."""
  sharding = mesh_lib.token_sharding(mesh, axis=1)

  def array(dtype: DTypeLike, *more: int, length: int = length) -> Any:
    shape = (micro_batches, rows, length, *more)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

  fields = [*[array(jnp.int32)] * 4, *[array(jnp.float32)] * 6]
  fields.insert(8, None)  # Rewards, which only a critic needs.
  chosen = None
  if replay is not None:
    shape = replay.experts
    chosen = array(shape.index_dtype, replay.num_layers, shape.per_token)
  teacher = None
  if teacher_length:
    read = array(jnp.int32, length=teacher_length)
    teacher = types.TeacherRows(
      *(read, read, read), array(jnp.int32), array(jnp.float32)
    )
  return types.Batch(*fields, experts=chosen, teacher=teacher)
