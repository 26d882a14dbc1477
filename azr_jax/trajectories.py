"""Samples conversations to train on: rejection sampling (R1-CI, 4.1).

  python -m azr_jax.trajectories --config=configs/trajectories.py:tiny \\
      --model=SPEC --workdir=DIR

Every question is asked in several solution styles. Correct, well-formed
conversations go to DIR/trajectories.jsonl, which `azr_jax.sft` trains on with
`config.data.kind = "demonstrations"`. The same command resumes.

  OPENAI_API_KEY=... python -m azr_jax.trajectories \\
      --config=configs/trajectories.py:gpt-4o --model=SPEC --workdir=DIR

asks a teacher on any OpenAI-compatible server (`config.teacher`). The chat
template of --model, the model that will learn, writes the prompts.
"""

import collections
import os

import jax
from absl import flags

from azr_jax.cli import front, host_flags
from azr_jax.config import settings as settings_lib
from azr_jax.lab.data import rejection_sampling
from azr_jax.run import storage
from azr_jax.trainer import settings as train_settings


def run() -> None:
  """Runs the command."""
  config = front.config_flag("The sampling, as FILE:VARIANT.")
  model = flags.DEFINE_string(
    "model", None, "A model spec or run folder.", required=True
  )
  workdir = flags.DEFINE_string(
    "workdir", None, "Folder for answers and conversations.", required=True
  )
  join = host_flags.define()

  def main() -> None:
    join()
    chosen = rejection_sampling.sample(
      config.value, model.value, workdir.value, os.environ
    )
    if jax.process_index() == 0:
      for task, count in collections.Counter(t.task for t in chosen).items():
        of_task = [t for t in chosen if t.task == task]
        with_code = sum(len(t.turns) > 1 for t in of_task)
        print(f"{task}: {count}, {with_code} of them with code")
      path = storage.resolve(workdir.value) / rejection_sampling.FILE
      print(f"{path} has {len(chosen)}")

  front.run(
    __doc__,
    main,
    lambda c: settings_lib.describe(
      train_settings.read(rejection_sampling.TrajectoriesRunSettings, c)
    ),
  )


if __name__ == "__main__":
  run()
