"""Splits a gain into changed styles of answers and better answers.

  python -m azr_jax.decompose START_SCORES AFTER_SCORES
  python -m azr_jax.decompose START_SCORES AFTER_SCORES TOLD_SCORES \\
      --style=FILE.py:NAME

SCORES is a folder that `azr_jax.evaluate` wrote, or several, one per seed,
separated by commas. TOLD_SCORES is the start with `evaluate.prefill`, which
tells it to begin in a style. `--style` names the styles; without it, the
records have them from `evaluate.style`.

Errors are standard errors over items, which are the same for all models.
"""

import dataclasses
import json
import pathlib
from typing import Any

from azr_jax.cli import errors
from azr_jax.evals import comparison, decomposition, score_files, styles
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.run import storage

NAMES = ("start", "after", "told")
FORMULA = "gain = sum of d share * mean accuracy + d accuracy * mean share"


def main() -> None:
  """Reads the folders, prints the tables and writes the JSON file."""
  parser = errors.Parser(__doc__, "azr_jax.decompose")
  parser.add_argument("start", metavar="START_SCORES")
  parser.add_argument("after", metavar="AFTER_SCORES")
  parser.add_argument("told", nargs="?", metavar="TOLD_SCORES")
  parser.add_argument("--benchmark", default="", help="default: the only one")
  parser.add_argument("--style", default="", help="first_word, FILE.py:NAME")
  parser.add_argument(
    "--min_share",
    type=float,
    default=0.01,
    help="rarer styles are joined, if they are rare in each folder",
  )
  parser.add_argument(
    "--out", default="", help="default: decomposition.json in AFTER_SCORES"
  )
  parser.add_argument("--resamples", type=int, default=10_000)
  parser.add_argument("--seed", type=int, default=0, help="resampling seed")
  words = parser.parse_args()
  for name, fits, expected in (
    ("min_share", 0 <= words.min_share < 1, "a number from 0 to below 1"),
    ("resamples", words.resamples >= 100, "100 or more"),
    ("seed", words.seed >= 0, "0 or more"),
  ):
    if not fits:
      parser.error(f"--{name}={getattr(words, name)}: expected {expected}")
  given = [words.start, words.after, *filter(None, [words.told])]
  models = [score_files.read_model(text) for text in given]
  benchmark = comparison.common_benchmark(models, words.benchmark)
  with styles.open_rule(words.style) as rule:
    items = [decomposition.read(one, benchmark, rule) for one in models]
  found_styles, subsets, tables = decomposition.tables(
    items, comparison.num_items(models, benchmark), words.min_share
  )
  rng = streams.generator(words.seed, Purpose.RESAMPLES)
  content: dict[str, Any] = {
    "benchmark": benchmark,
    "style": words.style or "evaluate.style",
    "formula": FORMULA,
    **dict(zip(NAMES, given, strict=False)),
  }
  print(f"{benchmark}: {FORMULA}\n")
  for subset, one in decomposition.by_subset(
    found_styles, subsets, tables, words.resamples, rng
  ):
    head = f"{subset or 'all'}, {one.items} items"
    print(decomposition.show(head, one, NAMES[: len(models)]), end="\n\n")
    content[subset or "all"] = dataclasses.asdict(one)
  path = pathlib.Path(words.out or models[1].folders[0] / "decomposition.json")
  storage.write_atomically(path, json.dumps(content, indent=1) + "\n")
  print(f"written to {path}")


def run() -> None:
  """Runs the command."""
  errors.guard(main)


if __name__ == "__main__":
  run()
