"""Supervised training on a corpus of conversations.

  python -m azr_jax.sft --config=configs/sft.py:azr_tiny --workdir=DIR

`config.data.kind` selects the corpus. At the end, DIR/model holds the model in
Hugging Face format. The same command resumes.
"""

import sys

import ml_collections
from absl import flags

from azr_jax.cli import config_files, front, host_flags
from azr_jax.cli.errors import UsageError
from azr_jax.config import settings as settings_lib
from azr_jax.run import folder, session, storage
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer import sft_loop, sft_plan


def train(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains to the last step or epoch, resuming from the run's folder.

  Raises:
    ValueError: a config value is not allowed, or the folder belongs to a run
      with another config or in another process.
  """
  settings = train_settings.read_supervised(config)
  timeout_s = settings.shared.hosts.timeout_s
  kind = settings.shared.data.kind
  begun_with = folder.begun_config(storage.resolve(workdir))
  values = sft_plan.as_begun(settings.shared, config.to_dict(), begun_with)
  with session.open_run(
    workdir,
    values,
    timeout_s,
    defaults=train_settings.supervised_config(kind).to_dict(),
  ) as run:
    sft_loop.train(settings, run)


def _describe(
  config: ml_collections.ConfigDict,
) -> list[settings_lib.Described]:
  """Returns every key of a supervised config with its documentation."""
  checked = train_settings.read_supervised(config)
  own = settings_lib.describe(checked.corpus, f"{checked.shared.data.kind}.")
  return [*settings_lib.describe(checked.shared), *own]


def run() -> None:
  """Runs the command."""
  config = front.config_flag("The training, as FILE:VARIANT.")
  workdir = flags.DEFINE_string(
    "workdir",
    None,
    "The folder for checkpoints, metrics and the report; the same folder "
    "resumes its run.",
    required=True,
  )
  join = host_flags.define()

  def main() -> None:
    epochs = config.value.data.epochs
    if epochs and (steps := config_files.override(sys.argv, "train.steps")):
      raise UsageError(
        f"--config.train.steps={steps}: expected no such flag, because "
        f"config.data.epochs={epochs} sets the steps; or --config.data.epochs=0"
      )
    join()
    train(config.value, workdir.value)

  front.run(__doc__, main, _describe)


if __name__ == "__main__":
  run()
