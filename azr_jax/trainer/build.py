"""Builds every part of an experiment from its settings, once.

`loop.train` takes all its parts from the `Experiment` that `build` returns, and
from what `opening.open_training` builds for a run. Trainer, learner, rollouts
and executor take named values. A system keeps its own section.
"""

import dataclasses
import pathlib

import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Key

from azr_jax import types
from azr_jax.executor import Executor
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.learner import (
  preparation,
)
from azr_jax.learner.learner import Learner
from azr_jax.learner.objective import Fixed
from azr_jax.models import (
  load,
  transformer,
)
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
from azr_jax.trainer import (
  decoders,
  frozen,
  learner_parts,
  messages,
  sizes,
  teachers,
)
from azr_jax.trainer.batching import Batching
from azr_jax.trainer.settings import (
  ExperimentSettings,
)
from azr_jax.trainer.steps_in_flight import StepsInFlight
from azr_jax.verbs import programs, rows
from azr_jax.verbs.data import DataLimits
from azr_jax.verbs.trainable import Trainable


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
    teacher: the teacher of distillation, if it is another model.
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
  teacher: load.ModelSource | None = None

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

  def load_teacher(self) -> types.Params | None:
    """Returns the teacher's parameters in the compute type, sharded.

    None unless the teacher is another model.
    """
    if self.teacher is None:
      return None
    c = self.settings.shared
    return self.teacher.load_params(
      self.mesh, c.sharding.rules(), dtype=jnp.dtype(c.model.dtype)
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
  what fits into memory. Downloads models if needed, and prints status lines
  about them.

  Args:
    settings: the configuration.
    workload: the workload to size for. None means a training step.
    may_choose_sizes: whether memory may decide the size of a cache that the
      configuration leaves open. False for a resumed run, whose sizes are fixed.

  Raises:
    ValueError: a model cannot be loaded or does not fit the mesh, or the
      devices cannot be laid out as configured.
    MemoryError: the devices lack memory for the smallest cache, or an update.
  """
  c = sizes.for_step(settings, workload)
  # Both meshes are checked before a model is downloaded.
  mesh = decoders.learner_mesh(c)
  layout.rollout_mesh(c.rollout.mesh, mesh)
  source = load.resolve(c.model.source, c.model.cache_dir)
  sampling_mesh = layout.rollout_mesh(
    c.rollout.mesh, mesh, source.config.experts
  )
  frozen.check_adapters(c.lora, source.lora, "config.model.source")
  teacher = teachers.find(c, source.tokenizer)
  messages.announce_model(source, c.rollout.longest + 1)
  rules = c.sharding.rules()
  teacher_config = teacher.config if teacher else None
  teacher_model, teacher_shapes = teachers.build(c, teacher_config, mesh)
  model = decoders.build_policy_model(c, source.config, mesh, teacher_shapes)
  shares_base = frozen.is_shared(
    c.lora, c.rollout, c.model.dtype, mesh, sampling_mesh
  )
  learner = learner_parts.build_learner(c, model, mesh, teacher_model)
  available = memory.available_bytes()
  state_bytes = sizes.check_update(
    c.learner,
    source.config,
    learner.abstract,
    mesh,
    available,
    may_choose_sizes,
    learner.base,
    reference_dtype=c.model.dtype if c.keeps_reference else None,
    teacher=teacher_shapes,
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
    learner_parts.build_scores(c, model, mesh),
    learner_parts.build_batching(
      c, mesh, source.config, source.tokenizer, teacher_config
    ),
    Sampler(
      model, source.tokenizer, sampling_mesh, rules, c.rollout, shares_base
    ),
    c.seed,
    teacher,
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
