"""A Countdown puzzle: reach a target with each given number exactly once."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Puzzle:
  """Numbers in the order they are shown, and the target."""

  numbers: tuple[int, ...]
  target: int

  @property
  def key(self) -> tuple[tuple[int, ...], int]:
    """The same for puzzles that differ in the order of numbers only."""
    return tuple(sorted(self.numbers)), self.target


def from_record(record: Mapping[str, Any]) -> Puzzle:
  """Reads the public layout, `nums` and `target`, or `input` and `output`.

  The second is that of the dLLM papers' test files: `"30,100,93"` and `"23"`.

  Raises:
    ValueError: a field is missing or not of positive integers.
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
