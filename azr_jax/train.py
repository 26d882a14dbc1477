"""Reinforcement learning from verifiable rewards.

  python -m azr_jax.train --config=configs/azr.py:tiny --workdir=DIR
    [--config.train.steps=100] [--fail_on_recompile] [--profile_steps=3-5]
    [--distributed]

The same command on the same folder resumes the run. The loop itself is
`azr_jax/trainer/loop.py`.
"""

import ml_collections
from absl import flags

from azr_jax.cli import front, host_flags
from azr_jax.config import settings as settings_lib
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer import start


def train(
  config: ml_collections.ConfigDict,
  workdir: str,
  fail_on_recompile: bool = False,
  profile_steps: str = "",
) -> None:
  """Trains until `config.train.steps`, resuming from the run's folder.

  Args:
    config: the whole config of an experiment, as files in `configs/` return it.
    workdir: the run folder, local or as gs://BUCKET/FOLDER.
    fail_on_recompile: whether to stop if a step after the first compiles.
    profile_steps: the steps to write a trace of, as 3 or 3-5; "" for none.

  Raises:
    ValueError: a config value is not allowed, or the folder belongs to a run
      with another config or in another process.
    RuntimeError, TimeoutError: see `loop.train`.
  """
  checked = train_settings.read_train(config)
  start.train(checked, config, workdir, fail_on_recompile, profile_steps)


def _describe(
  config: ml_collections.ConfigDict,
) -> list[settings_lib.Described]:
  """Returns every key of a training config with its documentation."""
  checked = train_settings.read_train(config)
  own = settings_lib.describe(
    checked.system_settings, f"{checked.system.name}."
  )
  return [*settings_lib.describe(checked.shared), *own]


def run() -> None:
  """Runs the command."""
  config = front.config_flag("The experiment, as FILE:VARIANT.")
  workdir = flags.DEFINE_string(
    "workdir",
    None,
    "The folder for checkpoints, metrics and the report; the same folder "
    "resumes its run.",
    required=True,
  )
  fail_on_recompile = flags.DEFINE_bool(
    "fail_on_recompile", False, "Stop if a step after the first compiles."
  )
  profile_steps = flags.DEFINE_string(
    "profile_steps", "", "Steps to write a profiler trace of, as 3 or 3-5."
  )
  join = host_flags.define()

  def main() -> None:
    join()
    train(
      config.value,
      workdir.value,
      fail_on_recompile.value,
      profile_steps.value,
    )

  front.run(__doc__, main, _describe)


if __name__ == "__main__":
  run()
