"""Validates proposed puzzles: they must be solvable, in range and new.

The ranges match the public training split (Countdown, section 3.2).
"""

from collections.abc import Collection

import numpy as np

from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import generator, solver

MAX_TARGET = 100


def rejection(puzzle: Puzzle | None, *known: Collection[object]) -> str | None:
  """Returns the reason to reject a proposal, or None to accept it.

  Args:
    puzzle: the parsed puzzle, or None if parsing failed.
    known: collections of the keys of existing puzzles.

  Returns:
    None, `format`, `range`, `known`, `held_out` or `unsolvable`.
  """
  if puzzle is None:
    return "format"
  if (
    len(puzzle.numbers) not in generator.COUNTS
    or not 1 <= min(puzzle.numbers) <= max(puzzle.numbers)
    or max(puzzle.numbers) > generator.MAX_NUMBER
    or not 1 <= puzzle.target <= MAX_TARGET
  ):
    return "range"
  if any(puzzle.key in keys for keys in known):
    return "known"
  if generator.is_test(puzzle):
    return "held_out"
  analysis = solver.analyse(
    np.array([puzzle.numbers]), np.array([puzzle.target])
  )
  return None if analysis.num_solutions[0] else "unsolvable"
