"""Compares models on the same items: paired differences with intervals.

  python -m azr_jax.compare BASE_SCORES RUN_SCORES
  python -m azr_jax.compare BASE_SCORES \\
      RUN_0_SCORES,RUN_1_SCORES,RUN_2_SCORES --benchmark=programs_heldout

SCORES is a folder that `azr_jax.evaluate` wrote. Comma-separated folders are
one model trained with several seeds; errors over seeds are reported separately
from errors over items. Each model is compared with the first.

Errors are standard errors. Intervals come from a bootstrap over items, which
are the same for both models, and over each model's seeds. The interval over
items allows for other questions. Only the interval over seeds also allows for
another training run.
"""

from azr_jax.cli import errors
from azr_jax.evals import comparison, registry, score_files


def main() -> None:
  """Reads the folders and prints a table for each model but the first."""
  parser = errors.Parser(__doc__, "azr_jax.compare")
  parser.add_argument("models", nargs="+", metavar="SCORES[,SCORES...]")
  parser.add_argument(
    "--benchmark", default="", help="comma-separated names; default: all"
  )
  parser.add_argument("--k", type=int, default=1, help="k of pass@k")
  parser.add_argument(
    "--resamples", type=int, default=10_000, help="number of resamples"
  )
  parser.add_argument(
    "--confidence", type=float, default=0.95, help="level of the intervals"
  )
  parser.add_argument("--seed", type=int, default=0, help="resampling seed")
  words = parser.parse_args()
  if len(words.models) < 2:
    parser.error(f"{words.models[0]}: expected a second model to compare")
  for name, fits, expected in (
    ("k", words.k >= 1, "1 or more"),
    ("resamples", words.resamples >= 100, "100 or more"),
    ("confidence", 0 < words.confidence < 1, "a number between 0 and 1"),
    ("seed", words.seed >= 0, "0 or more"),
  ):
    if not fits:
      parser.error(f"--{name}={getattr(words, name)}: expected {expected}")
  options = comparison.Options(
    registry.names(words.benchmark) if words.benchmark else (),
    words.k,
    words.resamples,
    words.confidence,
    words.seed,
  )
  first, *others = map(score_files.read_model, words.models)
  for other in others:
    found = list(comparison.compare(first, other, options))
    print(f"first: {first.name}\nsecond: {other.name}\n")
    print(comparison.show(found, words.confidence), end="\n\n")


def run() -> None:
  """Runs the command."""
  errors.guard(main)


if __name__ == "__main__":
  run()
