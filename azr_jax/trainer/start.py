"""Starts a training run, for the command and for `azr_jax.api`."""

import dataclasses

import ml_collections

from azr_jax.parallel import memory
from azr_jax.run import folder, profiling, session, storage
from azr_jax.trainer import build, loop, sizes, user_prompts
from azr_jax.trainer.settings import ExperimentSettings, train_config


@memory.explained(memory.TRAINING_KEYS)
def train(
  checked: ExperimentSettings,
  config: ml_collections.ConfigDict,
  workdir: str,
  fail_on_recompile: bool = False,
  profile_steps: str = "",
) -> None:
  """Trains until the last step, resuming from the run's folder.

  Args:
    checked: the settings that `settings.read_train` returned for the config.
    config: the whole config of an experiment.
    workdir: the run folder, local or as gs://BUCKET/FOLDER.
    fail_on_recompile: whether to stop if a step after the first compiles.
    profile_steps: the steps to write a trace of, as 3 or 3-5; "" for none.

  Raises:
    MemoryError: a device lacks memory.
    ValueError: a setting that the run needs is missing, or the folder belongs
      to a run with another config or in another process.
    RuntimeError, TimeoutError: see `loop.train`.
  """
  system, settings = checked.system, checked.system_settings
  system.check_start(settings)
  profiled = profiling.read_steps(profile_steps, checked.shared.train.steps)
  fixed = system.about(settings).fixed_keys
  begun_with = folder.begun_config(storage.resolve(workdir))
  kept, values = sizes.as_begun(checked.shared, config, begun_with)
  checked = dataclasses.replace(checked, shared=kept)
  values["prompts"]["digest"] = user_prompts.digest_of_run(
    checked, workdir, begun_with
  )
  with session.open_run(
    workdir,
    values,
    checked.shared.hosts.timeout_s,
    mutable_keys=[key for key in folder.MUTABLE_KEYS if key not in fixed],
    defaults=train_config(checked.shared.system).to_dict(),
  ) as run:
    experiment = build.build(checked, may_choose_sizes=begun_with is None)
    source = experiment.source.dated(run.date)
    experiment = dataclasses.replace(experiment, source=source)
    chosen = experiment.settings.shared.rollout
    if chosen.cache_gib != kept.rollout.cache_gib:
      run.print_status(sizes.describe(chosen))
      sizes.keep(values, chosen)
      run.keep_config(values)
    loop.train(experiment, run, fail_on_recompile, profiled)
