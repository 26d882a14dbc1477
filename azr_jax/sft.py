"""Supervised training on a corpus of conversations.

  python -m azr_jax.sft --config=configs/sft.py:azr_tiny --workdir=DIR

`config.data.kind` selects the corpus. At the end, DIR/model holds the model in
Hugging Face format. The same command resumes.
"""

import ml_collections
from absl import flags

from azr_jax.cli import front, host_flags
from azr_jax.config import settings as settings_lib
from azr_jax.run import session
from azr_jax.trainer import settings as train_settings
from azr_jax.trainer import sft_loop


def train(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains until `config.train.steps`, resuming from the run's folder.

  Raises:
    ValueError: a config value is not allowed, or the folder belongs to a run
      with another config or in another process.
  """
  settings = train_settings.read_supervised(config)
  timeout_s = settings.shared.hosts.timeout_s
  kind = settings.shared.data.kind
  with session.open_run(
    workdir,
    config.to_dict(),
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
    join()
    train(config.value, workdir.value)

  front.run(__doc__, main, _describe)


if __name__ == "__main__":
  run()
