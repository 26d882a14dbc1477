"""Starts a training run: what the command and `azr_jax.api` have in common."""

import ml_collections

from azr_jax.run import folder, profiling, session
from azr_jax.trainer import build, loop
from azr_jax.trainer.settings import ExperimentSettings


def train(
  checked: ExperimentSettings,
  config: ml_collections.ConfigDict,
  workdir: str,
  fail_on_recompile: bool = False,
  profile_steps: str = "",
) -> None:
  """Trains until the last step, resuming what the folder holds.

  Args:
    checked: what `settings.read_train` returned for the config.
    config: a whole experiment.
    workdir: the run folder, here or as gs://BUCKET/FOLDER.
    fail_on_recompile: stop when a step after the first compiles a program.
    profile_steps: the steps to write a trace of, as 3 or 3-5; "": none.

  Raises:
    ValueError: something that the run needs is not named, or the folder belongs
      to a run with another config or in another process.
    RuntimeError, TimeoutError: see `loop.train`.
  """
  system, settings = checked.system, checked.system_settings
  system.check_start(settings)
  profiled = profiling.read_steps(profile_steps, checked.shared.train.steps)
  fixed = system.fixed_keys(settings)
  with session.open_run(
    workdir,
    config.to_dict(),
    checked.shared.hosts.timeout_s,
    mutable_keys=[key for key in folder.MUTABLE_KEYS if key not in fixed],
  ) as run:
    loop.train(build.build(checked), run, fail_on_recompile, profiled)
