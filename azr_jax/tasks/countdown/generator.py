"""Random solvable puzzles, and which of them may be trained on.

Numbers are uniform in 1 to 99, three or four of them, targets uniform in 10 to
100; a puzzle is kept if it can be solved without negative or fractional values.
That is close to the public set (Jiayi-Pan/Countdown-Tasks-3to4), which was not
made by any published program.

A puzzle belongs to the test split if its sorted numbers and target hash into
one class of twenty, so no split ever holds another order of what is in the
other, however many are drawn.
"""

import hashlib
from collections.abc import Iterator

import numpy as np

from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import difficulty, solver

COUNTS = (3, 4)
LARGEST_NUMBER = 99
TARGETS = (10, 100)
TEST_CLASSES = 20
# Candidates that are solved together, by count of numbers: about as many pass.
_CANDIDATES = {3: 8192, 4: 2048}


def is_test(puzzle: Puzzle) -> bool:
  """Whether a puzzle belongs to the test split."""
  digest = hashlib.sha256(repr(puzzle.key).encode()).digest()
  return int.from_bytes(digest[:4], "big") % TEST_CLASSES == 0


def generate(
  seed: int, count: int, test: bool = False
) -> Iterator[tuple[Puzzle, float]]:
  """Yields distinct puzzles with their difficulty, half of each arity.

  Args:
    seed: root of the random draws.
    count: how many.
    test: of which split.
  """
  known: set[object] = set()
  streams = [_solvable(seed, numbers) for numbers in COUNTS]
  while len(known) < count:
    for stream in streams:
      puzzle, score = next(stream)
      while puzzle.key in known or is_test(puzzle) != test:
        puzzle, score = next(stream)
      known.add(puzzle.key)
      yield puzzle, score
      if len(known) == count:
        return


def _solvable(seed: int, size: int) -> Iterator[tuple[Puzzle, float]]:
  """Endless random puzzles of `size` numbers with natural solutions."""
  rng = np.random.default_rng((seed, size))
  rows = _CANDIDATES[size]
  while True:
    numbers = rng.integers(1, LARGEST_NUMBER + 1, (rows, size))
    targets = rng.integers(TARGETS[0], TARGETS[1] + 1, rows)
    analysis = solver.analyse(numbers, targets)
    scores = difficulty.score(analysis, size)
    for row in np.flatnonzero(analysis.natural):
      puzzle = Puzzle(tuple(numbers[row].tolist()), int(targets[row]))
      yield puzzle, float(scores[row])
