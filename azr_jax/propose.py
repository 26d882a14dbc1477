"""Makes a pool of Countdown puzzles to train on, by a model or at random.

  python -m azr_jax.propose --config=configs/propose.py:tiny --model=SPEC \\
      --out=FILE.jsonl [--count=603]
  python -m azr_jax.propose --random --out=FILE.jsonl

A frozen model continues a few examples. `--random` draws puzzles uniformly from
the same range, with the same filter (Countdown, section 3.2).
"""

import json

from absl import flags

from azr_jax.cli import compilation_cache, front
from azr_jax.cli.errors import UsageError
from azr_jax.config import settings as settings_lib
from azr_jax.lab.data import countdown_pool
from azr_jax.trainer import settings as train_settings


def run() -> None:
  """Runs the command."""
  config = front.config_flag("How proposals are sampled, as FILE:VARIANT.")
  model = flags.DEFINE_string("model", None, "A model spec or run folder.")
  at_random = flags.DEFINE_bool("random", False, "Draw at random, no model.")
  out = flags.DEFINE_string("out", None, "The file to write.", required=True)
  count = flags.DEFINE_integer(
    "count", 603, "Maximum number of puzzles.", lower_bound=1
  )

  def main() -> None:
    if at_random.value == (model.value is not None):
      raise UsageError("expected either --model=SPEC or --random")
    compilation_cache.enable()
    outcomes = countdown_pool.propose(
      config.value, model.value, out.value, count.value
    )
    print(json.dumps(outcomes, indent=2))

  front.run(
    __doc__,
    main,
    lambda c: settings_lib.describe(
      train_settings.read(countdown_pool.ProposeRunSettings, c)
    ),
    default_config="configs/propose.py",
  )


if __name__ == "__main__":
  run()
