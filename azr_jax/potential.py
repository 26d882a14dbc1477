"""Estimates what a model could learn from questions (R1-CI, section 3.3).

  python -m azr_jax.potential --config=configs/potential.py:tiny --model=SPEC \\
      --workdir=DIR

Several agents answer every question at several temperatures. The pass rates go
to DIR/pass_rates.jsonl, which `code_interpreter.pass_rates` reads; every answer
goes to a file next to it. The same command resumes.
"""

import jax
from absl import flags

from azr_jax.cli import front, host_flags
from azr_jax.config import settings as settings_lib
from azr_jax.lab.data import question_potential
from azr_jax.trainer import settings as train_settings


def run() -> None:
  """Runs the command."""
  config = front.config_flag("The configuration, as FILE:VARIANT.")
  model = flags.DEFINE_string(
    "model", None, "A model spec or run folder.", required=True
  )
  workdir = flags.DEFINE_string(
    "workdir", None, "The folder for answers and pass rates.", required=True
  )
  join = host_flags.define()

  def main() -> None:
    join()
    rates = question_potential.estimate(
      config.value, model.value, workdir.value
    )
    if jax.process_index() == 0:
      print(f"{len(rates)} questions")
      for rate in sorted({*rates}, key=lambda rate: rate.num_correct):
        print(
          f"{rate.num_correct:3d} correct: {rates.count(rate):6d}  "
          f"potential {rate.potential:.2f}"
        )

  front.run(
    __doc__,
    main,
    lambda c: settings_lib.describe(
      train_settings.read(question_potential.PotentialRunSettings, c)
    ),
  )


if __name__ == "__main__":
  run()
