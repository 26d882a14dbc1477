"""Writes the sums to train on: 6,000 each of three, four, five and six numbers.

  python -m experiments.longer_sums.texts --out=DIR

Numbers have two digits. None of the sums is scored.
"""

import argparse
import pathlib

from experiments.five_numbers import texts

LENGTHS = (3, 4, 5, 6)
ROWS, SEED = 6000, 40


def main() -> None:
  """Writes `sums.jsonl` into the folder `--out`."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--out", type=pathlib.Path, required=True)
  parser.add_argument("--scale", type=float, default=1.0)
  flags = parser.parse_args()
  flags.out.mkdir(parents=True, exist_ok=True)
  taken = texts.scored((length, length) for length in LENGTHS)
  rows = []
  for length in LENGTHS:
    problems = texts.take_new(
      (length, length), SEED + length, round(flags.scale * ROWS), taken
    )
    rows += texts.rows_of(problems)
  texts.write_rows(flags.out / "sums.jsonl", rows)


if __name__ == "__main__":
  main()
