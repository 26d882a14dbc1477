"""The state training starts from: a model, or a checkpoint of a run."""

import json
import pathlib
from typing import Any

import jax
from jax.sharding import Mesh
from jax.typing import DTypeLike

from azr_jax import types
from azr_jax.config import settings as settings_lib
from azr_jax.config import user_files
from azr_jax.config.settings import Invalid
from azr_jax.learner import critic_files
from azr_jax.learner import learner as learner_lib
from azr_jax.learner.actor_critic import ActorCritic
from azr_jax.learner.objective import Fixed
from azr_jax.models import load, transformer
from azr_jax.models.adapters import Lora
from azr_jax.models.settings import LoraSettings
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.run import checkpoint, checkpoint_reading, storage
from azr_jax.run import folder as folder_lib
from azr_jax.run.session import Run
from azr_jax.trainer import frozen
from azr_jax.trainer.build import Experiment

# The file of a run that says which checkpoint of another run it starts from.
START = "start.json"


def pin_start(experiment: Experiment, folder: pathlib.Path) -> int:
  """Returns the step of `train.init_from_run` that a run starts from.

  The first call stores the step in the run's folder. The other run may still
  be training, so its newest checkpoint may change before this run resumes, but
  a KL penalty must keep the same reference parameters.

  Args:
    experiment: the experiment that `build.build` returned.
    folder: the run's folder.

  Returns:
    The step, or 0 if the run starts from a model.

  Raises:
    ValueError: `train.init_from_run` is a run without a checkpoint, or missing
      although `train.keep_moments` needs it, or the stored step is damaged.
  """
  train = experiment.settings.shared.train
  spec = train.init_from_run
  if not spec and train.keep_moments:
    raise ValueError(
      "config.train.init_from_run='': expected a run's folder, because "
      "config.train.keep_moments=True starts from its moments"
    )
  if not spec:
    return 0
  path = folder / START
  if path.exists():
    run, step = _read_start(path)
    if run == spec:
      checkpoint_reading.require_undamaged(storage.resolve(spec), step)
      return step
  step = checkpoint_reading.newest_step(storage.resolve(spec))
  if step is None:
    raise ValueError(
      f"config.train.init_from_run={spec!r}: expected a run's folder with a "
      "finished checkpoint"
    )
  storage.write_atomically(path, json.dumps({"run": spec, "step": step}) + "\n")
  return step


def _read_start(path: pathlib.Path) -> tuple[str, int]:
  """Reads run and step from the file that `pin_start` writes.

  Raises:
    ValueError: the file is damaged.
  """
  with user_files.reading(path, "run and step, as JSON"):
    start = user_files.read_object(path)
    return str(start["run"]), int(start["step"])


def base_params(
  experiment: Experiment, folder: pathlib.Path, step: int
) -> tuple[types.Params, frozen.Origin]:
  """Returns the frozen parameters of a run, and where they come from.

  They are {} without adapters. Otherwise they are the model's or, if a run that
  trained all its parameters comes before the first run with adapters, that
  run's.

  Args:
    experiment: the experiment that `build.build` returned.
    folder: the run's folder.
    step: the step that `pin_start` returned.

  Raises:
    ValueError: the run to start from no longer has the step.
  """
  c = experiment.settings.shared
  origin = frozen.read_origin(folder) or frozen.Origin(c.model.source)
  spec = c.train.init_from_run
  if experiment.model.lora is not None and spec and not origin.run:
    before = frozen.read_origin(storage.resolve(spec))
    origin = before or frozen.Origin(c.model.source, spec, step)
    if origin.source != c.model.source:
      raise Invalid(
        "config.model.source",
        f"={c.model.source!r}: expected {origin.source!r}, the model of "
        f"config.train.init_from_run={spec!r}",
      )
  base = load_base(
    experiment.source,
    experiment.model,
    c.lora.matrix_dtype(c.model.dtype),
    experiment.mesh,
    c.sharding.rules(),
    origin,
  )
  return base, origin


def load_base(
  source: load.ModelSource,
  model: transformer.Transformer,
  dtype: DTypeLike,
  mesh: Mesh,
  rules: types.Rules,
  origin: frozen.Origin | None,
) -> types.Params:
  """Returns the frozen parameters of a run; {} without adapters.

  Args:
    source: the run's initial model.
    model: the decoder, whose layout the parameters get.
    dtype: the dtype of matrices that do not have 8 bits.
    mesh: the mesh of the parameters.
    rules: logical axis to mesh axis.
    origin: where they come from; None means the source.
  """
  if model.lora is None or origin is None or not origin.run:
    return frozen.load_base(source, model, dtype, mesh, rules)
  whole = transformer.Transformer(source.config)
  abstract = mesh_lib.sharded_shapes(
    transformer.abstract_params(whole), mesh, rules
  )
  folder = storage.resolve(origin.run)
  with checkpoint_reading.open_to_read(folder, origin.step) as (saved, step):
    (params,) = saved.restore_params(step, abstract)
  return frozen.freeze(params, model, dtype)


def _adapters_of(spec: str) -> Lora | None:
  """Returns the adapters that a run trained; None if it trained everything."""
  config = folder_lib.begun_config(storage.resolve(spec)) or {}
  section = config.get("lora", {})
  return settings_lib.build(LoraSettings, section).adapters


def initial_params(
  experiment: Experiment, step: int, with_critic: bool
) -> tuple[types.Params, ...]:
  """Returns the initial trained parameters of policy and maybe critic.

  Args:
    experiment: the experiment that `build.build` returned.
    step: the step that `pin_start` returned.
    with_critic: whether to return a critic's parameters, if the start has one:
      `critic.source`, or else the run to start from.

  Raises:
    ValueError: the run to start from no longer has the step, or
      `critic.source` is not a critic of this shape.
  """
  shared = experiment.settings.shared
  spec, source = shared.train.init_from_run, shared.critic.source
  chosen = (_load_critic(experiment, source),) if with_critic and source else ()
  if not spec or not _continues(experiment, spec):
    return experiment.load_trained(), *chosen
  abstract = experiment.learner.abstract
  critic = None
  if with_critic and not chosen and isinstance(abstract, ActorCritic):
    critic = abstract.critic.params
  folder = storage.resolve(spec)
  with checkpoint_reading.open_to_read(folder, step) as (checkpoints, step):
    params = checkpoints.restore_params(step, abstract.params, critic)
  return *params, *chosen


def _load_critic(experiment: Experiment, source: str) -> types.Params:
  """Returns the parameters of a critic's folder.

  Raises:
    ValueError: there is no such folder, or no critic of this shape in it.
  """
  shared = experiment.settings.shared
  folder = load.folder_of(source, shared.model.cache_dir)
  if folder is None:
    raise Invalid(
      "config.critic.source",
      f"={source!r}: expected a folder of azr_jax.export --critic, or "
      "hf:OWNER/NAME",
    )
  rules = shared.sharding.rules()
  return critic_files.load(experiment.model, folder, experiment.mesh, rules)


def _continues(experiment: Experiment, spec: str) -> bool:
  """Returns whether a run trains on the parameters of the run it starts from.

  A run with adapters does not if that run trained everything: it freezes them.

  Raises:
    Invalid: that run has other adapters.
  """
  before = _adapters_of(spec)
  lora = experiment.settings.shared.lora
  frozen.check_adapters(lora, before, f"config.train.init_from_run={spec!r}")
  return experiment.model.lora is None or before is not None


def training_state(
  experiment: Experiment,
  run: Run,
  checkpoints: checkpoint.Checkpointer,
  step: int,
) -> tuple[Any, Fixed, dict[str, Any]]:
  """Returns the state that training starts or resumes from.

  A resumed run reloads its initial parameters only if the learner keeps them,
  for a KL penalty or a teacher.

  Args:
    experiment: the experiment that `build.build` returned.
    checkpoints: the run's checkpoints.
    step: the step to restore; 0 for a new run.

  Returns:
    The learner's state, the parameters that no update changes, and the system's
    state at that step.

  Raises:
    ValueError: the run was started with another base model or teacher.
  """
  has_reference = experiment.settings.shared.keeps_reference
  make_reference = experiment.learner.make_reference
  start = run.build(
    "the run to start from", lambda: pin_start(experiment, run.folder)
  )
  base, origin = base_params(experiment, run.folder, start)
  frozen.pin(base, origin, run)
  teacher = experiment.load_teacher()
  distill = experiment.settings.shared.distill
  frozen.pin_teacher(teacher, distill.other_model, run)
  if step:
    reference = None
    if has_reference:
      # Free the float32 start before the learner's state is read.
      reference = jax.block_until_ready(
        make_reference(*initial_params(experiment, start, with_critic=False))
      )
    state, system = checkpoints.restore(step, experiment.learner.abstract)
    return state, Fixed(base, reference, teacher), system
  if experiment.settings.shared.train.keep_moments:
    state = _next_stage(experiment, start)
    reference = make_reference(state.params) if has_reference else None
    return state, Fixed(base, reference, teacher), {}
  params = initial_params(experiment, start, with_critic=True)
  reference = make_reference(params[0]) if has_reference else None
  return experiment.learner.init(*params), Fixed(base, reference, teacher), {}


def _next_stage(experiment: Experiment, step: int) -> learner_lib.State:
  """Returns the state of `train.init_from_run`, with schedules reset.

  Args:
    experiment: the experiment that `build.build` returned.
    step: the step that `pin_start` returned.

  Raises:
    ValueError: the run's optimizer has a different state than this one's.
  """
  spec = experiment.settings.shared.train.init_from_run
  if not _continues(experiment, spec):
    raise ValueError(
      f"config.train.keep_moments=True: expected a run with adapters as "
      f"config.train.init_from_run={spec!r}"
    )
  with checkpoint_reading.open_to_read(storage.resolve(spec), step) as (
    saved,
    step,
  ):
    try:
      state, _ = saved.restore(step, experiment.learner.abstract)
    except ValueError as error:
      raise ValueError(
        f"config.train.init_from_run={spec!r}: expected a run with the same "
        "model, estimator and optimizer, and the same use of "
        "distill.teacher='average', because config.train.keep_moments=True"
      ) from error
  return learner_lib.restarted(state)
