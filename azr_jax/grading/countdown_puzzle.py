"""Countdown puzzles: reach a target by using each number exactly once."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Puzzle:
  """The numbers in the order in which they are shown, and the target."""

  numbers: tuple[int, ...]
  target: int

  @property
  def key(self) -> tuple[tuple[int, ...], int]:
    """Equal for puzzles that differ in the order of their numbers only."""
    return tuple(sorted(self.numbers)), self.target


def from_record(record: Mapping[str, Any]) -> Puzzle:
  """Reads a puzzle from `nums` and `target`, or from `input` and `output`.

  The latter pair is the layout of the dLLM papers' test files, `"30,100,93"`
  and `"23"`.

  Raises:
    ValueError: a field is missing, or has no positive integers.
  """
  numbers: Any = record.get("nums")
  target: Any = record.get("target")
  if numbers is None and isinstance(record.get("input"), str):
    numbers, target = record["input"].split(","), record.get("output")
  try:
    puzzle = Puzzle(tuple(map(int, numbers)), int(target))
    if puzzle.numbers and min(puzzle.numbers) >= 1:
      return puzzle
  except (TypeError, ValueError):
    pass
  raise ValueError(
    f"nums={numbers!r:.80} target={target!r:.80}: expected positive integers"
  )
