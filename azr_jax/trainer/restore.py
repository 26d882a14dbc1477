"""The state training starts from: a model, or a checkpoint of a run."""

import json
import pathlib
from typing import Any

import jax

from azr_jax import types
from azr_jax.config import user_files
from azr_jax.learner import learner as learner_lib
from azr_jax.learner.actor_critic import ActorCritic
from azr_jax.learner.objective import Fixed
from azr_jax.models import transformer
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


def base_params(experiment: Experiment, step: int) -> types.Params:
  """Returns the frozen parameters of a run with adapters, else {}.

  They are the model's or, if `train.init_from_run` trained all its parameters,
  that run's.

  Args:
    experiment: the experiment that `build.build` returned.
    step: the step that `pin_start` returned.

  Raises:
    ValueError: the run to start from no longer has the step.
  """
  if experiment.model.lora is None or not _starts_from_whole(experiment):
    return experiment.load_base()
  c = experiment.settings.shared
  folder = storage.resolve(c.train.init_from_run)
  with checkpoint_reading.open_to_read(folder, step) as (checkpoints, step):
    abstract = mesh_lib.sharded_shapes(
      transformer.abstract_params(
        transformer.Transformer(experiment.source.config)
      ),
      experiment.mesh,
      c.sharding.rules(),
    )
    (params,) = checkpoints.restore_params(step, abstract)
  return frozen.freeze(params, experiment.model, c.lora)


def _starts_from_whole(experiment: Experiment) -> bool:
  """Returns whether the run to start from trained all its parameters."""
  spec = experiment.settings.shared.train.init_from_run
  if not spec:
    return False
  config = folder_lib.read_config(storage.resolve(spec))
  return not config.get("lora", {}).get("rank", 0)


def initial_params(
  experiment: Experiment, step: int, with_critic: bool
) -> tuple[types.Params, ...]:
  """Returns the initial trained parameters of policy and maybe critic.

  Args:
    experiment: the experiment that `build.build` returned.
    step: the step that `pin_start` returned.
    with_critic: whether to return a critic's parameters, if the start has one.

  Raises:
    ValueError: the run to start from no longer has the step.
  """
  spec = experiment.settings.shared.train.init_from_run
  is_adapted = experiment.model.lora is not None
  if not spec or (is_adapted and _starts_from_whole(experiment)):
    return (experiment.load_trained(),)
  abstract = experiment.learner.abstract
  critic = None
  if with_critic and isinstance(abstract, ActorCritic):
    critic = abstract.critic.params
  folder = storage.resolve(spec)
  with checkpoint_reading.open_to_read(folder, step) as (checkpoints, step):
    return checkpoints.restore_params(step, abstract.params, critic)


def training_state(
  experiment: Experiment,
  run: Run,
  checkpoints: checkpoint.Checkpointer,
  step: int,
) -> tuple[Any, Fixed, dict[str, Any]]:
  """Returns the state that training starts or resumes from.

  A resumed run reloads its initial parameters only for the KL reference.

  Args:
    experiment: the experiment that `build.build` returned.
    checkpoints: the run's checkpoints.
    step: the step to restore; 0 for a new run.

  Returns:
    The learner's state, the parameters that no update changes, and the system's
    state at that step.

  Raises:
    ValueError: the run was started with another base model.
  """
  has_reference = experiment.settings.shared.learner.kl_coef > 0
  make_reference = experiment.learner.make_reference
  start = run.build(
    "the run to start from", lambda: pin_start(experiment, run.folder)
  )
  base = base_params(experiment, start)
  source = experiment.settings.shared.model.source
  run.build(
    "the base model",
    lambda: frozen.pin_identity(base, source, run.folder),
  )
  if step:
    reference = None
    if has_reference:
      # Free the float32 start before the learner's state is read.
      reference = jax.block_until_ready(
        make_reference(*initial_params(experiment, start, with_critic=False))
      )
    state, system = checkpoints.restore(step, experiment.learner.abstract)
    return state, Fixed(base, reference), system
  if experiment.settings.shared.train.keep_moments:
    state = _next_stage(experiment, start)
    reference = make_reference(state.params) if has_reference else None
    return state, Fixed(base, reference), {}
  params = initial_params(experiment, start, with_critic=True)
  reference = make_reference(params[0]) if has_reference else None
  return experiment.learner.init(*params), Fixed(base, reference), {}


def _next_stage(experiment: Experiment, step: int) -> learner_lib.State:
  """Returns the state of `train.init_from_run`, with schedules reset.

  Args:
    experiment: the experiment that `build.build` returned.
    step: the step that `pin_start` returned.

  Raises:
    ValueError: the run's optimizer has a different state than this one's.
  """
  spec = experiment.settings.shared.train.init_from_run
  with checkpoint_reading.open_to_read(storage.resolve(spec), step) as (
    saved,
    step,
  ):
    try:
      state, _ = saved.restore(step, experiment.learner.abstract)
    except ValueError as error:
      raise ValueError(
        f"config.train.init_from_run={spec!r}: expected a run with the same "
        "model, estimator and optimizer, because config.train.keep_moments=True"
      ) from error
  return learner_lib.restarted(state)
