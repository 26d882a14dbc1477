"""Builds Countdown puzzles with difficulties, split into training and test.

python -m azr_jax.tasks.countdown --count=100000 --out=DIR
"""

import pathlib
import time

import numpy as np

from azr_jax.cli import errors
from azr_jax.tasks.countdown import dataset, difficulty


def main() -> None:
  """Builds the puzzles and prints their counts by difficulty."""
  parser = errors.Parser(__doc__, "azr_jax.tasks.countdown")
  parser.add_argument(
    "--count", type=int, default=100_000, help="training puzzles"
  )
  parser.add_argument("--test", type=int, default=1000, help="test puzzles")
  parser.add_argument("--seed", type=int, default=0, help="random seed")
  parser.add_argument(
    "--out", type=pathlib.Path, required=True, help="folder for the dataset"
  )
  flags = parser.parse_args()
  start = time.monotonic()
  _, scores = dataset.load(
    seed=flags.seed,
    train=flags.count,
    test=flags.test,
    data_dir=flags.out.expanduser(),
    split="train",
  )
  thresholds = difficulty.thresholds(scores)
  counts = np.bincount(difficulty.buckets(scores, thresholds), minlength=3)
  files = [p for p in flags.out.expanduser().rglob("*") if p.is_file()]
  size = sum(path.stat().st_size for path in files)
  print(
    f"{len(scores)} puzzles in {flags.out}: "
    + ", ".join(
      f"{count} {name}"
      for name, count in zip(difficulty.BUCKETS, counts, strict=True)
    )
    + f"; thirds at {thresholds[0]:.3f} and {thresholds[1]:.3f}; "
    f"{time.monotonic() - start:.0f} s, {size / 2**20:.1f} MiB"
  )


if __name__ == "__main__":
  errors.guard(main)
