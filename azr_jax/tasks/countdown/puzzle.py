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
  """Reads the public layout, `nums` and `target`.

  Raises:
    ValueError: a field is missing or not of positive integers.
  """
  numbers, target = record.get("nums"), record.get("target")
  listed = list(numbers) if hasattr(numbers, "__iter__") else [None]
  try:
    puzzle = Puzzle(tuple(map(int, listed)), int(target))  # type: ignore
  except (TypeError, ValueError):
    puzzle = None
  if puzzle is None or not puzzle.numbers or min(puzzle.numbers) < 1:
    raise ValueError(
      f"nums={numbers!r:.80} target={target!r:.80}: expected positive integers"
    )
  return puzzle
