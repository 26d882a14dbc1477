"""Countdown puzzles: reach a target by using each number exactly once."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Puzzle:
  """The numbers, in the order the prompt shows them, and the target."""

  numbers: tuple[int, ...]
  target: int

  @property
  def key(self) -> tuple[tuple[int, ...], int]:
    """Returns a key, equal for the same target and numbers in any order."""
    return tuple(sorted(self.numbers)), self.target


def from_record(record: Mapping[str, Any]) -> Puzzle:
  """Reads a puzzle from `nums` and `target`, or from `input` and `output`.

  The test files of the dLLM papers use the second layout, with texts such as
  `"30,100,93"` and `"23"`.

  Raises:
    ValueError: a field is missing or is not made of positive integers.
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
