"""Ways through a room of our own making; the public task has no data.

Its public form has 14 maps with ten instructions each, and continuous
way-points. Here a seed gives as many as are wanted: walls and named places are
rectangles of whole squares in a room; a way in steps of one square exists.
"""

import collections
from typing import Any

import numpy as np

_SIZE = 10
_PLACES = ("kitchen", "bath", "office", "garage", "store", "garden")
_WALLS, _VISITS = (2, 5), (2, 4)  # At least, and fewer than.
_LONGEST_SIDE = 3

Cell = tuple[int, int]
Rectangle = tuple[int, int, int, int]


def make(seed: int, index: int) -> tuple[str, dict[str, Any]]:
  """Text and reference of one question; always the same for its numbers."""
  rng = np.random.default_rng([seed, index])
  while True:
    start: Cell = (int(rng.integers(_SIZE)), int(rng.integers(_SIZE)))
    walls = [_rectangle(rng) for _ in range(rng.integers(*_WALLS))]
    places = {name: _rectangle(rng) for name in rng.permutation(_PLACES)}
    visits = int(rng.integers(*_VISITS))
    visit = list(places)[:visits]
    avoid = list(places)[visits]
    blocked = _cells([*walls, places[avoid]])
    path = _way(start, [_cells([places[name]]) for name in visit], blocked)
    if path is not None:
      break
  begin = (start[0] + 0.5, start[1] + 0.5)
  boxes = "\n".join(
    f"- {name}: from {r[:2]} to {r[2:]}" for name, r in sorted(places.items())
  )
  walled = ", ".join(f"from {r[:2]} to {r[2:]}" for r in walls)
  text = (
    f"A room reaches from (0, 0) to ({_SIZE}, {_SIZE}). Places in it, as "
    f"rectangles from one corner to the opposite one:\n{boxes}\nWalls: "
    f"{walled}.\nStart at {begin}. Go to the {', then to the '.join(visit)}, "
    f"in this order, and never touch the {avoid} or a wall, not even at an "
    "edge. Other places may be crossed. Give the way-points of your path, "
    "straight lines between them, beginning with the start, as "
    "<<<[(0.5, 0.5), (3.5, 0.5), (3.5, 7)]>>>."
  )
  return text, {
    "answer": str([(x + 0.5, y + 0.5) for x, y in path]),
    "size": (_SIZE, _SIZE),
    "start": tuple(map(str, begin)),
    "visit": [places[name] for name in visit],
    "forbidden": [*walls, places[avoid]],
  }


def _rectangle(rng: np.random.Generator) -> Rectangle:
  width, height = (int(side) for side in rng.integers(1, _LONGEST_SIDE + 1, 2))
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


def _way(
  start: Cell, visits: list[set[Cell]], blocked: set[Cell]
) -> list[Cell] | None:
  """Squares beside one another through all visits; None: there is no way."""
  path = [start]
  for wanted in visits:
    came: dict[Cell, Cell | None] = {path[-1]: None}
    queue = collections.deque([path[-1]])
    while queue and queue[0] not in wanted:
      x, y = here = queue.popleft()
      for beside in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
        inside = 0 <= beside[0] < _SIZE and 0 <= beside[1] < _SIZE
        if inside and beside not in blocked and beside not in came:
          came[beside] = here
          queue.append(beside)
    if not queue or path[0] in blocked:
      return None
    back: list[Cell] = []
    at: Cell | None = queue[0]
    while at is not None and at != path[-1]:
      back.append(at)
      at = came[at]
    path += back[::-1]
  return path
