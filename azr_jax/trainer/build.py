"""Builds every part of an experiment from its settings, once.

`loop.train` takes all its parts from the `Experiment` that `build` returns, and
from what `opening.open_training` builds for a run. Trainer, learner, rollouts
and executor take named values. A system keeps its own section.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Key

from azr_jax import types
from azr_jax.executor import Executor
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.learner import (
  advantages,
  corrections,
  distillation,
  moments,
  objective,
  packing,
  policy_losses,
  preparation,
  rounding,
  shaping,
)
from azr_jax.learner import critic as critic_lib
from azr_jax.learner import learner as learner_lib
from azr_jax.learner.entropy_target import EntropyTarget
from azr_jax.learner.learner import Learner
from azr_jax.learner.objective import Fixed
from azr_jax.learner.optimizer import make_optimizer
from azr_jax.learner.rounding import Draws
from azr_jax.learner.settings import (
  LearnerSettings,
  OptimizerSettings,
  SupervisedSettings,
)
from azr_jax.models import (
  adapters,
  attention,
  expert_sharding,
  load,
  presets,
  rope,
  transformer,
)
from azr_jax.models import remat as remat_lib
from azr_jax.models.config import ModelConfig
from azr_jax.models.settings import LoraSettings, ModelSettings
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel import memory
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.rollout import layout
from azr_jax.rollout.sampler import Sampler
from azr_jax.run.records import Records
from azr_jax.run.session import Run
from azr_jax.systems.system import Context, System
from azr_jax.trainer import frozen, messages, sizes
from azr_jax.trainer.batching import Batching
from azr_jax.trainer.settings import (
  ExperimentSettings,
  SupervisedTrainSettings,
  TrainSettings,
)
from azr_jax.trainer.steps_in_flight import StepsInFlight
from azr_jax.trainer.teacher_prompts import TeacherPrompts
from azr_jax.verbs import programs, rows
from azr_jax.verbs.data import DataLimits
from azr_jax.verbs.trainable import Trainable

_ALL_TRAINED = LoraSettings()


@dataclasses.dataclass(frozen=True)
class Experiment:
  """The parts of a training run.

  Attributes:
    settings: the checked configuration, for what builds the parts of a run.
    mesh: the mesh of the learner's state.
    source: the tokenizer and the initial parameters.
    model: the decoder, as the learner computes it.
    learner: the jitted update of a policy, or of a policy and its critic.
    scores: the jitted scoring of batches by a policy.
    batching: makes the batch of an update.
    sampler: the sampler, on the same devices.
    seed: the seed of all random keys.
  """

  settings: ExperimentSettings
  mesh: Mesh
  source: load.ModelSource
  model: transformer.Transformer
  learner: Learner
  scores: preparation.Scores
  batching: Batching
  sampler: Sampler
  seed: int

  def make_system(
    self, executor: Executor, jobs: SharedJobs, run: Run
  ) -> System:
    """Builds the system of a run. It may read or generate its data."""
    c = self.settings.shared
    context = Context(
      seed=c.seed,
      steps=c.train.steps,
      jobs=jobs,
      executor=executor,
      hosts=run.hosts,
      tokenizer=self.source.tokenizer,
      sandbox=c.executor,
      clock=jobs.clock if c.rollout.may_be_stale else DecodeClock(),
      records=Records(run.folder, run.hosts),
      templates=self.settings.templates,
      say=run.print_status,
    )
    return self.settings.system.build(self.settings.system_settings, context)

  def steps_in_flight(self, system: System, jobs: SharedJobs) -> StepsInFlight:
    """Builds the collector of rollouts, which can overlap steps."""
    c = self.settings.shared
    return StepsInFlight(
      self.sampler,
      self.source.tokenizer,
      self.sampling_key,
      system,
      jobs,
      c.rollout.max_staleness,
      c.rollout.step_tokens,
      c.train.steps,
    )

  def load_base(self) -> types.Params:
    """Returns the frozen parameters, sharded on the mesh; {} if all train."""
    c = self.settings.shared
    return frozen.load_base(
      self.source,
      self.model,
      c.lora.matrix_dtype(c.model.dtype),
      self.mesh,
      c.sharding.rules(),
    )

  def load_trained(self) -> types.Params:
    """Returns the initial trained parameters, sharded on the mesh."""
    rules = self.settings.shared.sharding.rules()
    return frozen.load_trained(
      self.source, self.model, self.mesh, rules, self.seed
    )

  def sampling_key(self, step: int) -> Key[Array, ""]:
    """Returns the random key of a step's rollouts."""
    return keys.of(self.seed, Purpose.SAMPLING, step)

  def interactive_key(self, number: int, is_chosen: bool) -> Key[Array, ""]:
    """Returns the random key of a call that samples interactively.

    Args:
      number: the seed of the call, or its number if it has no seed.
      is_chosen: whether the user chose the number.
    """
    return keys.of(self.seed, Purpose.INTERACTIVE, int(is_chosen), number)

  def evaluation_key(self) -> Key[Array, ""]:
    """Returns the random key of evaluations, the same at every step."""
    return keys.of(self.seed, Purpose.EVALUATION)

  def trainable(self, fixed: Fixed, trained: types.Params) -> Trainable:
    """Returns a model that the four verbs train, with fresh moments.

    Args:
      fixed: the frozen parameters.
      trained: the others, which stay as they are until the first step.
    """
    c, mesh, config = self.settings.shared, self.mesh, self.source.config
    functions = programs.make(
      *(self.model, mesh, c.sharding.rules()),
      chunk_tokens=c.learner.chunk_tokens,
      options=c.compiler.options(mesh),
    )
    shapes = rows.shapes(
      mesh_lib.padded_rows(c.learner.micro_rows, mesh),
      c.learner.row_length,
      mesh_lib.padded_rows(1, mesh),
      c.learner.max_sequences_per_row,
      config.hidden_size,
    )
    limits = DataLimits(c.learner.row_length, config.vocab_size)
    return Trainable(functions, shapes, limits, fixed, functions.start(trained))

  def closing_message(self, folder: pathlib.Path, step: int) -> str:
    """Returns the lines to print when a run in `folder` ends after a step."""
    return messages.closing_message(self.settings, folder, step)


def build(
  settings: ExperimentSettings,
  workload: sizes.Workload | None = None,
  may_choose_sizes: bool = True,
) -> Experiment:
  """Builds the experiment of a checked configuration. Compiles nothing.

  Slots and rows are reduced to what the workload can fill, and the cache to
  what fits into memory. Downloads the model if needed, and prints a status line
  about it.

  Args:
    settings: the configuration.
    workload: the workload to size for. None means a training step.
    may_choose_sizes: whether memory may decide the size of a cache that the
      configuration leaves open. False for a resumed run, whose sizes are fixed.

  Raises:
    ValueError: the model cannot be loaded or does not fit the mesh, or the
      devices cannot be laid out as configured.
    MemoryError: the devices lack memory for the smallest cache, or an update.
  """
  c = sizes.for_step(settings, workload)
  # Both meshes are checked before a model is downloaded.
  mesh = learner_mesh(c)
  layout.rollout_mesh(c.rollout.mesh, mesh)
  source = load.resolve(c.model.source, c.model.cache_dir)
  sampling_mesh = layout.rollout_mesh(
    c.rollout.mesh, mesh, source.config.experts
  )
  frozen.check_adapters(c.lora, source.lora, "config.model.source")
  messages.announce_model(source, c.rollout.longest + 1)
  rules = c.sharding.rules()
  model = build_policy_model(c, source.config, mesh)
  shares_base = frozen.is_shared(
    c.lora, c.rollout, c.model.dtype, mesh, sampling_mesh
  )
  learner = build_learner(c, model, mesh)
  available = memory.available_bytes()
  state_bytes = sizes.check_update(
    c.learner,
    source.config,
    learner.abstract,
    mesh,
    available,
    may_choose_sizes,
    learner.base,
    keeps_reference=c.keeps_reference,
  )
  if available is not None:
    rollout = sizes.fit_cache(
      model,
      sampling_mesh,
      rules,
      c.rollout,
      available - state_bytes,
      may_choose_sizes,
      shares_base,
    )
    c = dataclasses.replace(c, rollout=rollout)
  return Experiment(
    dataclasses.replace(settings, shared=c),
    mesh,
    source,
    model,
    learner,
    build_scores(c, model, mesh),
    build_batching(c, mesh, source.config, source.tokenizer),
    Sampler(
      model, source.tokenizer, sampling_mesh, rules, c.rollout, shares_base
    ),
    c.seed,
  )


def learner_mesh(
  c: TrainSettings | SupervisedTrainSettings,
  devices: Sequence[jax.Device] | None = None,
) -> Mesh:
  """Returns the mesh for the learner's state and rows.

  Args:
    c: settings with section `mesh` and the row length.
    devices: the devices of the mesh. None means all.

  Raises:
    ValueError: the sizes do not multiply to the number of devices, or rows
      cannot be split evenly over `mesh.context`.
  """
  mesh = mesh_lib.make_mesh(c.mesh.sizes(), devices)
  lengths = {"learner.row_length": c.learner.row_length}
  if isinstance(c, TrainSettings):
    lengths["distill.row_length"] = c.teacher_row_length
  for key, length in lengths.items():
    if length % mesh.shape["context"]:
      raise ValueError(
        f"config.{key}={length}: expected a multiple of config.mesh.context="
        f"{mesh.shape['context']}"
      )
  return mesh


def build_policy_model(
  c: TrainSettings, config: ModelConfig, mesh: Mesh
) -> transformer.Transformer:
  """Builds the decoder of a policy that is sampled and trained on a mesh."""
  sampling_mesh = layout.rollout_mesh(c.rollout.mesh, mesh, config.experts)
  is_shared = frozen.is_shared(
    c.lora, c.rollout, c.model.dtype, mesh, sampling_mesh
  )
  model = build_model(
    c.model,
    # As in `rollout.build.sampling_model`.
    rope.for_length(config, c.rollout.longest + 1),
    mesh,
    c.sharding.rules(),
    rows=c.learner,
    sampler_bytes=_sampler_bytes(c, config, sampling_mesh, is_shared),
    state_size=state_size(c.model, c.optimizer),
    critic_size=critic_size(c),
    reference=c.keeps_reference,
    lora=c.lora,
  )
  return frozen.arranged(c, model, mesh) if is_shared else model


def state_size(model: ModelSettings, optimizer: OptimizerSettings) -> float:
  """Returns the bytes of a trained parameter and its moments."""
  return (
    jnp.dtype(model.param_dtype).itemsize + moments.BYTES[optimizer.moments]
  )


def critic_size(c: TrainSettings) -> float:
  """Returns `state_size` of the critic; 0 without a critic."""
  if c.learner.estimator != advantages.GAE:
    return 0.0
  return state_size(c.model, c.critic.optimizer)


def _sampler_bytes(
  c: TrainSettings, config: ModelConfig, mesh: Mesh, shares_base: bool
) -> float | None:
  """Returns the bytes of a sampler's weights and cache on each device.

  None if `rollout.cache_gib` leaves the size of the cache open. Counts weights
  in the compute type, even if they have 8 bits.

  Args:
    c: the run's settings.
    config: the decoder's shape.
    mesh: the sampler's mesh.
    shares_base: whether the sampler reads the learner's copy of the weights.
  """
  if not c.rollout.cache_gib:
    return None
  if shares_base:
    return c.rollout.cache_gib * memory.GIB
  size = jnp.dtype(c.model.dtype).itemsize
  weights = size * presets.parameter_count(config)
  weights *= remat_lib.held_fraction(config, mesh)
  return c.rollout.cache_gib * memory.GIB + weights


def build_model(
  model: ModelSettings,
  config: ModelConfig,
  mesh: Mesh,
  rules: types.Rules,
  *,
  rows: LearnerSettings | SupervisedSettings | None,
  sampler_bytes: float | None,
  state_size: float = remat_lib.STATE_SIZE,
  critic_size: float = 0.0,
  reference: bool = False,
  lora: LoraSettings = _ALL_TRAINED,
) -> transformer.Transformer:
  """Builds a decoder, for computing on a mesh.

  Args:
    config: the decoder's shape.
    mesh: the mesh of parameters and rows.
    rules: how parameters are sharded over the mesh.
    rows: section `learner`, with the packed rows of an update. None if the
      model is not trained.
    sampler_bytes: bytes of a sampler's weights and cache on each device. None
      if the size of the cache is unknown.
    state_size: bytes of a trained parameter and its moments.
    critic_size: the same of a critic of this shape; 0 without a critic.
    reference: whether a reference policy is kept.
    lora: section `lora` of the configuration.

  Raises:
    ValueError: the mesh cannot split the experts.
  """
  expert_sharding.check(config, mesh, rules, "config.mesh.expert")
  micro_rows = mesh_lib.padded_rows(rows.micro_rows, mesh) if rows else 1
  trained = None
  if lora.adapters is not None:
    trained = adapters.parameter_count(config, lora.adapters)
  whole = attention.resolve(model.attention, mesh, model.dtype) == "xla"
  remat = remat_lib.choose(
    model.remat,
    config,
    model.dtype,
    mesh,
    micro_rows * rows.row_length if rows else 1,
    rows.chunk_tokens if rows else 1,
    memory.capacity_bytes(mesh),
    inlined=transformer.is_inlined(model.layers, config.num_layers, mesh),
    sampler_bytes=sampler_bytes,
    state_size=state_size,
    critic_size=critic_size,
    reference=reference,
    row_length=rows.row_length if rows and whole else 0,
    trained=trained,
    base_bytes=lora.base_bytes(config, model.dtype),
  )
  return transformer.training(
    config,
    model.dtype,
    mesh,
    rules,
    attention_name=model.attention,
    max_sequences_per_row=(
      rows.max_sequences_per_row if rows else packing.MAX_SEQUENCES_PER_ROW
    ),
    remat=remat,
    layers=model.layers,
    lora=lora.adapters,
    kernel_dtype=lora.kernel_dtype,
    param_dtype=model.param_dtype,
  )


def build_policy_loss(
  c: TrainSettings, model: transformer.Transformer, mesh: Mesh
) -> objective.MicroLoss:
  """Builds the loss that `learner` and `rollout.temperature` describe."""
  learner = c.learner
  return objective.make_policy_loss(
    model,
    policy_losses.make(learner.policy_loss, learner),
    temperature=c.rollout.temperature,
    chunk_tokens=learner.chunk_tokens,
    mesh=mesh,
    entropy_coef=learner.entropy_coef,
    kl_coef=learner.kl_loss_coef,
    kl_estimator=learner.kl_estimator,
    ratio_to=learner.ratio_to,
    correct=corrections.make(c.correction, learner.corrections),
    distill=distillation.make(
      model,
      loss=c.distill.loss,
      weight=c.distill.weight,
      policy_weight=c.distill.policy_weight,
      teacher=c.distill.teacher,
      top_k=c.distill.top_k,
      temperature=c.rollout.temperature,
      chunk_tokens=learner.chunk_tokens,
      mesh=mesh,
    ),
  )


def build_preparation(
  c: TrainSettings, model: transformer.Transformer, mesh: Mesh
) -> preparation.Prepare | None:
  """Builds the batch preparation that `learner` needs, or returns None."""
  learner = c.learner
  return preparation.make_prepare(
    model,
    temperature=c.rollout.temperature,
    chunk_tokens=learner.chunk_tokens,
    mesh=mesh,
    seed=c.seed,
    needs_proximal=learner.needs_proximal,
    top_entropy_fraction=learner.top_entropy_fraction,
    choose=policy_losses.make(learner.policy_loss, learner).choose,
    options=c.compiler.options(mesh),
  )


def build_scores(
  c: TrainSettings, model: transformer.Transformer, mesh: Mesh
) -> preparation.Scores:
  """Builds the scoring of batches at the sampling temperature, jitted."""
  return jax.jit(
    preparation.make_scores(
      model,
      c.learner.chunk_tokens,
      temperature=c.rollout.temperature,
      mesh=mesh,
    ),
    compiler_options=c.compiler.options(mesh),
  )


def replay_of(
  c: TrainSettings, config: ModelConfig
) -> packing.RouterReplay | None:
  """Returns what packs the sampler's experts; None without router replay."""
  if config.experts is None or not c.rollout.router_replay:
    return None
  return packing.RouterReplay(config.num_layers, config.experts)


def build_batching(
  c: TrainSettings, mesh: Mesh, config: ModelConfig, tokenizer: Tokenizer
) -> Batching:
  """Builds the host's part of a step between rollouts and update."""
  learner = c.learner
  return Batching(
    functools.partial(
      shaping.shape_rewards,
      overlong_buffer=c.shaping.overlong_buffer,
      overlong_penalty=c.shaping.overlong_penalty,
      mask_truncated=c.shaping.mask_truncated,
      longest=c.rollout.max_tokens,
    ),
    drops_equal_groups=learner.drop_equal_groups,
    estimator=learner.estimator,
    normalize_advantages=learner.normalize_advantages,
    pass_k=learner.pass_k,
    row_length=learner.row_length,
    max_sequences_per_row=learner.max_sequences_per_row,
    micro_rows=mesh_lib.padded_rows(learner.micro_rows, mesh),
    max_micro_batches=learner.max_micro_batches,
    aggregation=learner.aggregation,
    regularizer_aggregation=learner.regularizer_aggregation,
    group_mean_size=learner.group_mean_size,
    minibatches=learner.minibatches,
    seed=c.seed,
    replay=replay_of(c, config),
    teacher=_build_teacher(c, tokenizer),
  )


def _build_teacher(
  c: TrainSettings, tokenizer: Tokenizer
) -> TeacherPrompts | None:
  """Builds the writer of the teacher's prompts; None without distillation."""
  distill = c.distill
  if not distill.weight:
    return None
  return TeacherPrompts(
    tokenizer,
    distill.context,
    {name: getattr(distill, f"{name}_text") for name in distillation.CONTEXTS},
    distill.success_reward,
    distill.text_tokens,
    c.teacher_row_length,
  )


def build_learner(
  c: TrainSettings, model: transformer.Transformer, mesh: Mesh
) -> Learner:
  """Builds the policy's learner, with a critic if the estimator needs one."""
  critic = None
  if c.learner.estimator == advantages.GAE:
    critic = learner_lib.CriticParts(
      make_optimizer(
        **vars(c.critic.optimizer), draws=Draws(c.seed, rounding.CRITIC)
      ),
      gamma=c.critic.gamma,
      gae_lambda=c.critic.gae_lambda,
      num_minibatches=c.critic.num_minibatches,
      value_clip=c.critic.value_clip,
      grad_clip=c.critic.optimizer.grad_clip,
      head_init=c.critic.head_init,
      normalize=c.learner.normalize_advantages,
      seed=c.seed,
      aggregation=c.learner.aggregation,
      penalty=_build_penalty(c, model, mesh),
    )
  target = c.learner.target_entropy
  options = c.compiler.options(mesh)
  return learner_lib.make(
    model,
    build_policy_loss(c, model, mesh),
    make_optimizer(**vars(c.optimizer), draws=Draws(c.seed)),
    mesh,
    c.sharding.rules(),
    critic=critic,
    epochs=c.learner.epochs,
    minibatches=c.learner.minibatches,
    options=options,
    prepare=build_preparation(c, model, mesh),
    entropy_target=EntropyTarget(**vars(target)) if target else None,
    base_dtype=c.lora.matrix_dtype(c.model.dtype),
    seed=c.seed,
  )


def _build_penalty(
  c: TrainSettings, model: transformer.Transformer, mesh: Mesh
) -> critic_lib.Penalty | None:
  """Builds the KL penalty of rewards; None without one."""
  if not c.learner.kl_reward_coef:
    return None
  return critic_lib.make_kl_penalty(
    model,
    coef=c.learner.kl_reward_coef,
    estimator=c.learner.kl_estimator,
    temperature=c.rollout.temperature,
    chunk_tokens=c.learner.chunk_tokens,
    mesh=mesh,
  )


def build_executor(
  sandbox: ExecutorSettings, hosts: Hosts | None = None
) -> Executor:
  """Returns a started executor, a context manager that ends its processes.

  Args:
    sandbox: section `executor` of the config.
    hosts: the hosts of the run, if all of them call this at the same time. On a
      Ray cluster they share the actors that the primary host starts.
  """
  if hosts is None or hosts.count == 1 or sandbox.backend != "ray":
    return Executor(**vars(sandbox))
  started: list[Executor] = []

  def start() -> str:
    started.append(Executor(**vars(sandbox)))
    return started[0].service

  service = hosts.from_primary("executor", start)
  return started[0] if started else Executor(**vars(sandbox), service=service)
