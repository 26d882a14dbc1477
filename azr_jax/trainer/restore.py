"""The state training starts from: a model, or a checkpoint of a run."""

import json
import pathlib
from typing import Any

import jax
from jax.sharding import Mesh
from jax.typing import DTypeLike

from azr_jax import types
from azr_jax.config import user_files
from azr_jax.learner import learner as learner_lib
from azr_jax.learner.actor_critic import ActorCritic
from azr_jax.learner.objective import Fixed
from azr_jax.models import load, transformer
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
  c = experiment.settings.shared
  return _load_base(
    experiment.source,
    experiment.model,
    c.lora.matrix_dtype(c.model.dtype),
    experiment.mesh,
    c.sharding.rules(),
    (c.train.init_from_run, step) if c.train.init_from_run else None,
  )


def load_base(
  source: load.ModelSource,
  model: transformer.Transformer,
  dtype: DTypeLike,
  mesh: Mesh,
  rules: types.Rules,
  folder: pathlib.Path,
) -> types.Params:
  """Returns the frozen parameters of a finished run; {} without adapters.

  Args:
    source: the run's initial model.
    model: the decoder, whose layout the parameters get.
    dtype: the dtype of matrices that do not have 8 bits.
    mesh: the mesh of the parameters.
    rules: logical axis to mesh axis.
    folder: the run's folder.
  """
  return _load_base(source, model, dtype, mesh, rules, _start_of(folder))


def _load_base(
  source: load.ModelSource,
  model: transformer.Transformer,
  dtype: DTypeLike,
  mesh: Mesh,
  rules: types.Rules,
  start: tuple[str, int] | None,
) -> types.Params:
  """Returns the frozen parameters of a run with this start; {} without."""
  start = _whole_run(start)
  if model.lora is None or start is None:
    return frozen.load_base(source, model, dtype, mesh, rules)
  whole = transformer.Transformer(source.config)
  abstract = mesh_lib.sharded_shapes(
    transformer.abstract_params(whole), mesh, rules
  )
  spec, step = start
  with checkpoint_reading.open_to_read(storage.resolve(spec), step) as (
    checkpoints,
    step,
  ):
    (params,) = checkpoints.restore_params(step, abstract)
  return frozen.freeze(params, model, dtype)


def base_run(folder: pathlib.Path) -> str:
  """Returns the run whose parameters a run's adapters adapt.

  Returns:
    The run's folder; "" if they adapt `model.source`.
  """
  start = _whole_run(_start_of(folder))
  return "" if start is None else start[0]


def _whole_run(start: tuple[str, int] | None) -> tuple[str, int] | None:
  """Returns the first run, from a start back, that trained all parameters."""
  while start is not None and _has_adapters(start[0]):
    start = _start_of(storage.resolve(start[0]))
  return start


def _has_adapters(spec: str) -> bool:
  """Returns whether a run trained adapters."""
  config = folder_lib.begun_config(storage.resolve(spec)) or {}
  return bool(config.get("lora", {}).get("rank", 0))


def _start_of(folder: pathlib.Path) -> tuple[str, int] | None:
  """Returns run and step that a run started from; None if from a model."""
  path = folder / START
  return _read_start(path) if path.exists() else None


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
  if not spec or (is_adapted and not _has_adapters(spec)):
    return (experiment.load_trained(),)
  if not is_adapted and _has_adapters(spec):
    raise ValueError(
      f"config.train.init_from_run={spec!r} trained adapters: expected "
      "config.lora.rank of that run, or its export as config.model.source"
    )
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
  frozen.pin_identity(base, source, run)
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
