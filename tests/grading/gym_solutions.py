"""Solves reasoning-gym questions that have no stored answer."""

import collections
import json
from collections.abc import Iterator

BOARD_SIZE = 6  # Rows and columns of a rush hour board.
Cars = dict[str, tuple[tuple[int, int], ...]]


def solve(name: str, text: str, metadata: dict) -> str:
  """Returns an answer that should be correct.

  Args:
    name: the name of the set.
    text: the question.
    metadata: the metadata of the reasoning-gym entry.
  """
  if name == "graph_color":
    return json.dumps(metadata["possible_answer"])
  if name == "propositional_logic":
    return metadata["example_answer"]
  if name == "rubiks_cube":
    return metadata["example_correct_answer"]
  assert name == "rush_hour"
  return _rush_hour(text.partition("Board:\n")[2].split())


def _rush_hour(rows: list[str]) -> str:
  """Finds moves of car AA to the right edge by breadth-first search."""
  cars: Cars = {}
  for y, row in enumerate(rows):
    for x, label in enumerate(row):
      if label not in ".x":
        cars[label] = (*cars.get(label, ()), (x, y))
  walls = {
    (x, y) for y, row in enumerate(rows) for x, c in enumerate(row) if c == "x"
  }
  seen = {tuple(sorted(cars.items()))}
  queue = collections.deque([(cars, "")])
  while queue:
    now, moves = queue.popleft()
    if max(x for x, _ in now["A"]) == BOARD_SIZE - 1:
      return moves.strip()
    for label, step, moved in _moves(now, walls):
      after = now | {label: moved}
      key = tuple(sorted(after.items()))
      if key not in seen:
        seen.add(key)
        queue.append((after, f"{moves} {label}{step:+d}"))
  raise ValueError("no solution")


def _moves(
  cars: Cars, walls: set[tuple[int, int]]
) -> Iterator[tuple[str, int, tuple[tuple[int, int], ...]]]:
  """Yields each one-cell move of a car as (label, step, new cells)."""
  for label, cells in cars.items():
    others = {
      cell for name, car in cars.items() if name != label for cell in car
    }
    is_horizontal = int(cells[0][1] == cells[1][1])
    for step in (-1, 1):
      moved = tuple(
        (x + step * is_horizontal, y + step * (1 - is_horizontal))
        for x, y in cells
      )
      if all(
        0 <= x < BOARD_SIZE
        and 0 <= y < BOARD_SIZE
        and (x, y) not in others | walls
        for x, y in moved
      ):
        yield label, step, moved
