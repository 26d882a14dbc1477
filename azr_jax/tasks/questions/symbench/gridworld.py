"""Generates path-planning questions, because the public task has no data.

The public task has 14 maps with ten instructions each and continuous waypoints.
Here, questions are generated from a seed. Walls and places are rectangles of
whole squares in a room, and a path in steps of one square always exists.
"""

import collections
from typing import Any

import numpy as np

_SIZE = 10
_PLACES = ("kitchen", "bath", "office", "garage", "store", "garden")
# Ranges of counts; the upper ends are exclusive.
_NUM_WALLS, _NUM_VISITS = (2, 5), (2, 4)
_MAX_SIDE = 3

Cell = tuple[int, int]
Rectangle = tuple[int, int, int, int]


def make(seed: int, index: int) -> tuple[str, dict[str, Any]]:
  """Returns (text, reference) of question `index` of a seed."""
  rng = np.random.default_rng([seed, index])
  while True:
    start: Cell = (int(rng.integers(_SIZE)), int(rng.integers(_SIZE)))
    walls = [_rectangle(rng) for _ in range(rng.integers(*_NUM_WALLS))]
    places = {name: _rectangle(rng) for name in rng.permutation(_PLACES)}
    num_visits = int(rng.integers(*_NUM_VISITS))
    visit = list(places)[:num_visits]
    avoid = list(places)[num_visits]
    blocked = _cells([*walls, places[avoid]])
    path = _find_path(
      start, [_cells([places[name]]) for name in visit], blocked
    )
    if path is not None:
      break
  start_point = (start[0] + 0.5, start[1] + 0.5)
  place_lines = "\n".join(
    f"- {name}: from {r[:2]} to {r[2:]}" for name, r in sorted(places.items())
  )
  wall_list = ", ".join(f"from {r[:2]} to {r[2:]}" for r in walls)
  text = (
    f"A room reaches from (0, 0) to ({_SIZE}, {_SIZE}). Places in it, as "
    f"rectangles from one corner to the opposite one:\n{place_lines}\nWalls: "
    f"{wall_list}.\nStart at {start_point}. Go to the "
    f"{', then to the '.join(visit)}, "
    f"in this order, and never touch the {avoid} or a wall, not even at an "
    "edge. Other places may be crossed. Give the way-points of your path, "
    "straight lines between them, beginning with the start, as "
    "<<<[(0.5, 0.5), (3.5, 0.5), (3.5, 7)]>>>."
  )
  return text, {
    "answer": str([(x + 0.5, y + 0.5) for x, y in path]),
    "size": (_SIZE, _SIZE),
    "start": tuple(map(str, start_point)),
    "visit": [places[name] for name in visit],
    "forbidden": [*walls, places[avoid]],
  }


def _rectangle(rng: np.random.Generator) -> Rectangle:
  width, height = (int(side) for side in rng.integers(1, _MAX_SIDE + 1, 2))
  x = int(rng.integers(_SIZE - width + 1))
  y = int(rng.integers(_SIZE - height + 1))
  return x, y, x + width, y + height


def _cells(rectangles: list[Rectangle]) -> set[Cell]:
  return {
    (x, y)
    for left, bottom, right, top in rectangles
    for x in range(left, right)
    for y in range(bottom, top)
  }


def _find_path(
  start: Cell, visits: list[set[Cell]], blocked: set[Cell]
) -> list[Cell] | None:
  """Returns a path of adjacent squares through all places in order, or None.

  Breadth-first search finds a shortest path to each next place.
  """
  path = [start]
  for goal in visits:
    previous: dict[Cell, Cell | None] = {path[-1]: None}
    queue = collections.deque([path[-1]])
    while queue and queue[0] not in goal:
      x, y = cell = queue.popleft()
      for neighbour in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
        is_inside = 0 <= neighbour[0] < _SIZE and 0 <= neighbour[1] < _SIZE
        is_free = neighbour not in blocked and neighbour not in previous
        if is_inside and is_free:
          previous[neighbour] = cell
          queue.append(neighbour)
    if not queue or path[0] in blocked:
      return None
    backwards: list[Cell] = []
    step: Cell | None = queue[0]
    while step is not None and step != path[-1]:
      backwards.append(step)
      step = previous[step]
    path += backwards[::-1]
  return path
