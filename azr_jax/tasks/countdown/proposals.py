"""Validates proposed puzzles: they must be solvable, in range and new.

The ranges match the public training split (Countdown, section 3.2).
"""

from collections.abc import Collection

import numpy as np

from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import generator, solver

MAX_TARGET = 100
_EXPLANATIONS = {
  "format": "It is not written as the prompt asks.",
  "range": f"A puzzle has {' or '.join(map(str, generator.COUNTS))} numbers "
  f"from 1 to {generator.MAX_NUMBER}, and a target from 1 to {MAX_TARGET}.",
  "known": "The puzzle exists already.",
  "held_out": "The puzzle is held out.",
  "unsolvable": "No expression with its numbers has the target as its value.",
}


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


def explain(reason: str | None) -> str:
  """Returns what is wrong with a proposal, in words; "" if it is accepted.

  Args:
    reason: what `rejection` returned.
  """
  return f"Rejected: {_EXPLANATIONS[reason]}" if reason else ""
