"""Grades SymBench plans by simulating each step.

Each grader takes a question's reference and an answer, and returns whether the
answer is correct. A plan with an illegal step is incorrect.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from azr_jax.grading.symbench import answer_parsing

Reference = Mapping[str, Any]
Point = tuple[Fraction, Fraction]
Cell = tuple[str, ...]
# (x, y) of the lower left corner, then (x, y) of the upper right corner.
Rectangle = Sequence[int]

_NUMBERED = r"(?:\d+\s*[.):]\s*|[-*]\s+)?"
_MOVE = re.compile(
  _NUMBERED + r"move\s+(\w+)\s+from\s+(\w+)\s+to\s+(\w+)\s*[.,;]?",
  re.IGNORECASE,
)
_STEP = re.compile(r"step\s+\d+\s*:", re.IGNORECASE)
_LIFT = re.compile(r"\(\s*(\d{1,9})\s*,\s*\[([\d\s,]*)\]\s*\)", re.ASCII)
_AGENT = re.compile(
  r"[\"']?Agent\[\s*([\d.]+)\s*,\s*([\d.]+)\s*\][\"']?\s*:\s*[\"']?"
  r"move\(\s*(box_\w+)\s*,\s*"
  r"(?:(target_\w+)|square\[\s*([\d.]+)\s*,\s*([\d.]+)\s*\])\s*\)[\"']?",
  re.ASCII,
)
_STEP_OF_MOVES = re.compile(r"\{([^{}]*)\}")
_LETTERS_PARTS = re.compile(
  r"count\s*+:\s*+(\d{1,6})(?:\s*+[,;]|[^\S\n]*+\n)\s*+"
  r"positions\s*+:\s*+\[([\d\s,]*+)\]",
  re.IGNORECASE | re.ASCII,
)


def blocksworld(reference: Reference, answer: str) -> bool:
  """Accepts lines `Move X from A to B` that reach the goal.

  Only the last block of a stack can move.
  """
  stacks = {name: list(blocks) for name, blocks in reference["start"].items()}
  for line in filter(None, map(str.strip, answer.splitlines())):
    move = _MOVE.fullmatch(line)
    if not move:
      return False
    block, source, target = move.groups()
    if (
      source == target
      or target not in stacks
      or not stacks.get(source)
      or stacks[source][-1] != block
    ):
      return False
    stacks[target].append(stacks[source].pop())
  goal = reference["goal"]
  return all(blocks == goal.get(name, []) for name, blocks in stacks.items())


def boxlift(reference: Reference, answer: str) -> bool:
  """Accepts steps that lift each box once and use no lifter twice per step."""
  lifters = reference["lifters"]
  head, *steps = _STEP.split(answer)
  if head.strip() or not 0 < len(steps) <= reference["steps"]:
    return False
  lifted: Counter[int] = Counter()
  for step in steps:
    lifts = _LIFT.findall(step)
    if _LIFT.sub("", step).strip(" \n\t[],;"):
      return False
    used: list[int] = []
    for weight, names in lifts:
      team = answer_parsing.integers(names)
      if team is None or any(lifter >= len(lifters) for lifter in team):
        return False
      if sum(lifters[lifter] for lifter in team) < int(weight):
        return False
      used += team
      lifted[int(weight)] += 1
    if len(set(used)) != len(used):
      return False
  return lifted == Counter(reference["boxes"])


def boxnet(reference: Reference, answer: str) -> bool:
  """Accepts steps of moves that bring every box to a target.

  Each agent makes at most one move per step. It moves a box in its cell to a
  neighbouring cell, or to a target of the same colour in its cell. All moves of
  a step happen at once.
  """
  cells = {
    tuple(name.split("_")): [*inside]
    for name, inside in reference["cells"].items()
  }
  steps = _STEP_OF_MOVES.findall(answer)
  if _STEP_OF_MOVES.sub("", answer).strip(" \n\t[],;"):
    return False
  for step in steps:
    moves = _AGENT.findall(step)
    if _AGENT.sub("", step).strip(" \n\t,"):
      return False
    if len({move[:2] for move in moves}) != len(moves):
      return False
    arrivals = [_leaves(cells, move) for move in moves]
    for arrival in arrivals:
      if arrival is None:
        return False
      cells[arrival[0]] += arrival[1]
  return not any(cells.values())


def _leaves(
  cells: Mapping[Cell, list[str]], move: tuple[str, ...]
) -> tuple[Cell, list[str]] | None:
  """Takes a box from its cell and returns where it goes.

  Returns:
    The destination cell and the boxes that arrive there, which is an empty list
    if the box reached its target. None if the move is illegal.
  """
  here, box, target, there = move[:2], move[2], move[3], move[4:]
  if box not in cells.get(here, ()):
    return None
  cells[here].remove(box)
  if not target:
    is_neighbour = there in cells and _distance(here, there) == 1
    return (there, [box]) if is_neighbour else None
  if target.split("_")[1:] != box.split("_")[1:] or target not in cells[here]:
    return None
  cells[here].remove(target)
  return here, []


def _distance(a: Cell, b: Cell) -> Fraction:
  return sum(
    (abs(Fraction(i) - Fraction(j)) for i, j in zip(a, b, strict=True)),
    Fraction(0),
  )


def gridworld(reference: Reference, answer: str) -> bool:
  """Accepts points from the start that visit the wanted areas in order.

  The straight lines between the points must stay in the room and must not touch
  a forbidden area, such as a wall.
  """
  path = answer_parsing.points(answer)
  width, height = reference["size"]
  if path is None or path[0] != tuple(map(Fraction, reference["start"])):
    return False
  if not all(0 <= x <= width and 0 <= y <= height for x, y in path):
    return False
  for start, end in zip(path, path[1:], strict=False):
    if any(_touches(start, end, r) for r in reference["forbidden"]):
      return False
  wanted = list(reference["visit"])
  for point in path:
    while wanted and _inside(point, wanted[0]):
      wanted.pop(0)
  return not wanted


def _inside(point: Point, rectangle: Rectangle) -> bool:
  left, bottom, right, top = rectangle
  return left <= point[0] <= right and bottom <= point[1] <= top


def _touches(start: Point, end: Point, rectangle: Rectangle) -> bool:
  """Returns whether the segment from start to end touches a rectangle."""
  enters, leaves = Fraction(0), Fraction(1)
  for axis in (0, 1):
    low, high = rectangle[axis], rectangle[axis + 2]
    step = end[axis] - start[axis]
    if step == 0:
      if not low <= start[axis] <= high:
        return False
      continue
    times = sorted([(low - start[axis]) / step, (high - start[axis]) / step])
    enters, leaves = max(enters, times[0]), min(leaves, times[1])
  return enters <= leaves


def letters(reference: Reference, answer: str) -> bool:
  """Accepts `count: N, positions: [...]`, with ascending 1-based positions."""
  parts = _LETTERS_PARTS.fullmatch(answer.strip(" \n\t{}"))
  if parts is None:
    return False
  positions = answer_parsing.integers(parts[2])
  wanted = [
    position
    for position, letter in enumerate(reference["word"], 1)
    if letter == reference["letter"]
  ]
  return int(parts[1]) == len(wanted) and positions == wanted
