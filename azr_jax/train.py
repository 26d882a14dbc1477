"""Reinforcement learning from verifiable rewards.

  python -m azr_jax.train --config=configs/azr.py:tiny --workdir=DIR
    [--config.train.steps=100] [--fail_on_recompile] [--profile_steps=3-5]
    [--distributed]

The same command on the same folder resumes the run where it was stopped. The
loop itself is `azr_jax/trainer/loop.py`.
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
  """Trains until `config.train.steps`, resuming what the folder holds.

  Args:
    config: a whole experiment, as a file of `configs/` returns it.
    workdir: the run folder, here or as gs://BUCKET/FOLDER.
    fail_on_recompile: stop when a step after the first compiles a program.
    profile_steps: the steps to write a trace of, as 3 or 3-5; "": none.

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
  """Returns every key of a training config with its meaning."""
  checked = train_settings.read_train(config)
  own = settings_lib.describe(
    checked.system_settings, f"{checked.system.name}."
  )
  return [*settings_lib.describe(checked.shared), *own]


def run() -> None:
  """Runs the command."""
  config = front.config_flag("The experiment, as FILE:VARIANT.")
  workdir = flags.DEFINE_string(
    "workdir", None, "The run folder.", required=True
  )
  fail_on_recompile = flags.DEFINE_bool(
    "fail_on_recompile", False, "Stop when a later step compiles a program."
  )
  profile_steps = flags.DEFINE_string(
    "profile_steps", "", "Steps to write a trace of, such as 3 or 3-5."
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
