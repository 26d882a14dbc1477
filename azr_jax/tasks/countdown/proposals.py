"""Which proposed puzzles are taken: solvable, in range, new, not held out.

The ranges are those of the public training split (seed 003, section 3.2).
"""

from collections.abc import Collection

import numpy as np

from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import generator, solver

LARGEST_TARGET = 100


def rejection(puzzle: Puzzle | None, known: Collection[object]) -> str | None:
  """Why a proposal is not taken, or None.

  Args:
    puzzle: what was parsed, or None.
    known: keys of puzzles that are not new.
  """
  if puzzle is None:
    return "format"
  if (
    len(puzzle.numbers) not in generator.COUNTS
    or not 1 <= min(puzzle.numbers) <= max(puzzle.numbers)
    or max(puzzle.numbers) > generator.LARGEST_NUMBER
    or not 1 <= puzzle.target <= LARGEST_TARGET
  ):
    return "range"
  if puzzle.key in known:
    return "known"
  if generator.is_test(puzzle):
    return "held_out"
  found = solver.analyse(np.array([puzzle.numbers]), np.array([puzzle.target]))
  return None if found.paths[0] else "unsolvable"
