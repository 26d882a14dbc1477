"""Generates random solvable puzzles and splits them for training and test.

A puzzle has three or four numbers, uniform in [1, 99], and a target, uniform in
[10, 100]. Puzzles without a solution free of negative and fractional values are
dropped. The result is close to the public set
(Jiayi-Pan/Countdown-Tasks-3to4), whose generator is not published.

A puzzle belongs to the test split if a hash of its sorted numbers and target
falls into the first of `NUM_HASH_BUCKETS` buckets. So the splits never share a
puzzle, not even with reordered numbers, no matter how many are generated.
"""

import hashlib
from collections.abc import Iterator

import numpy as np

from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import difficulty, solver

COUNTS = (3, 4)
MAX_NUMBER = 99
TARGETS = (10, 100)
NUM_HASH_BUCKETS = 20
# Batch size of candidate puzzles, by how many numbers they have. Batches of
# either size have about equally many solvable puzzles.
_CANDIDATES = {3: 8192, 4: 2048}


def is_test(puzzle: Puzzle) -> bool:
  """Returns whether a puzzle belongs to the test split."""
  digest = hashlib.sha256(repr(puzzle.key).encode()).digest()
  return int.from_bytes(digest[:4], "big") % NUM_HASH_BUCKETS == 0


def generate(
  seed: int, count: int, test: bool = False
) -> Iterator[tuple[Puzzle, float]]:
  """Yields distinct puzzles and their difficulties.

  Puzzles of three and four numbers alternate.

  Args:
    seed: the seed for all random draws.
    count: the number of puzzles.
    test: whether to generate the test split instead of the training split.
  """
  known: set[object] = set()
  streams = [_solvable(seed, numbers, test) for numbers in COUNTS]
  while len(known) < count:
    for stream in streams:
      puzzle, score = next(stream)
      while puzzle.key in known:
        puzzle, score = next(stream)
      known.add(puzzle.key)
      yield puzzle, score
      if len(known) == count:
        return


def _solvable(
  seed: int, size: int, test: bool
) -> Iterator[tuple[Puzzle, float]]:
  """Yields an endless stream of solvable puzzles of `size` numbers."""
  rng = np.random.default_rng((seed, size))
  rows = _CANDIDATES[size]
  while True:
    numbers = rng.integers(1, MAX_NUMBER + 1, (rows, size))
    targets = rng.integers(TARGETS[0], TARGETS[1] + 1, rows)
    candidates = map(tuple, numbers.tolist())
    puzzles = list(map(Puzzle, candidates, targets.tolist()))
    # Filter by split first, because hashing is much cheaper than solving.
    own = [row for row, p in enumerate(puzzles) if is_test(p) == test]
    if not own:
      continue
    analysis = solver.analyse(numbers[own], targets[own])
    scores = difficulty.score(analysis, size)
    for index in np.flatnonzero(analysis.natural):
      yield puzzles[own[index]], float(scores[index])
