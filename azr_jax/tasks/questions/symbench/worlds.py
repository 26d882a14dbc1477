"""Questions of the SymBench tasks whose files contain only a world.

The public files of these tasks have neither questions nor answers. The wording
of the questions is ours. A solver finds an answer to each question, which
proves that it can be answered.
"""

import collections
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax.tasks.countdown import solver

# The text and the reference of a question.
TextAndReference = tuple[str, dict[str, Any]]
# The search visits every state, so the number of blocks is limited.
_MAX_BLOCKS = 6
_TARGET = 24


def game24(numbers: Sequence[int]) -> TextAndReference | None:
  """Asks to reach 24 with four numbers. Returns None if it is impossible."""
  analysis = solver.analyse(np.array([numbers]), np.array([_TARGET]))
  if analysis.best[0] < 0:
    return None
  text = (
    f"Use each of the numbers {', '.join(map(str, numbers))} exactly once, "
    "with +, -, *, / and brackets, to get 24. Give the term, as "
    "<<<(2 + 10) * 4 / 2>>>."
  )
  return text, {
    "answer": solver.term(tuple(numbers), int(analysis.best[0])).text,
    "numbers": list(numbers),
    "target": _TARGET,
  }


def letters(word: str, letter: str) -> TextAndReference:
  """Asks how often and where a letter occurs in a word."""
  positions = [at for at, other in enumerate(word, 1) if other == letter]
  text = (
    f"How often does the letter '{letter}' stand in the word '{word}', and "
    "where? Positions count from 1. Give both, as "
    "<<<count: 2, positions: [1, 4]>>>."
  )
  reference = {"word": word, "letter": letter}
  answer = f"count: {len(positions)}, positions: {positions}"
  return text, {"answer": answer, **reference}


def blocksworld(file: str) -> TextAndReference | None:
  """Asks to move blocks between stacks. Returns None if no move is needed."""
  start, goal = (
    {name: blocks.split() for name, blocks in _STACK.findall(part)}
    for part in file.split("Goal State:")
  )
  blocks = sorted(itertools.chain(*start.values()))
  if not start or blocks != sorted(itertools.chain(*goal.values())):
    raise ValueError("expected the same blocks before and after")
  text = (
    "Blocks stand in stacks, listed from the lowest to the highest. Only a "
    "stack's highest block can be moved, onto the top of another stack, which "
    f"may be empty.\n\nStart:\n{_stacks(start)}\n\nGoal (other stacks are "
    f"empty):\n{_stacks(goal)}\n\nGive the moves, one on a line, as\n"
    "<<<Move B from stack2 to stack1\nMove A from stack2 to stack3>>>"
  )
  moves = _moves(start, goal)
  if not moves:
    return None
  answer = "\n".join(f"Move {b} from {a} to {c}" for b, a, c in moves)
  return text, {"answer": answer, "start": start, "goal": goal}


_STACK = re.compile(r"^(stack\d+):[ \t]*([A-Z \t]*)$", re.MULTILINE)


def _stacks(stacks: Mapping[str, Sequence[str]]) -> str:
  return "\n".join(
    f"{name}: {' '.join(blocks)}".strip() for name, blocks in stacks.items()
  )


def _moves(
  start: Mapping[str, Sequence[str]], goal: Mapping[str, Sequence[str]]
) -> list[tuple[str, str, str]]:
  """Returns a shortest list of moves (block, from, to), by BFS."""
  names = list(start)
  goal_state = tuple(tuple(goal.get(name, ())) for name in names)
  first_state = tuple(tuple(start[name]) for name in names)
  if sum(map(len, first_state)) > _MAX_BLOCKS:
    raise ValueError(f"expected at most {_MAX_BLOCKS} blocks")
  moves_to: dict[tuple, list[tuple[str, str, str]]] = {first_state: []}
  queue = collections.deque([first_state])
  while queue:
    state = queue.popleft()
    if state == goal_state:
      return moves_to[state]
    for a, c in itertools.permutations(range(len(names)), 2):
      if not state[a]:
        continue
      stacks = [*state]
      block = stacks[a][-1]
      stacks[a], stacks[c] = stacks[a][:-1], (*stacks[c], block)
      next_state = tuple(stacks)
      if next_state not in moves_to:
        move = (block, names[a], names[c])
        moves_to[next_state] = [*moves_to[state], move]
        queue.append(next_state)
  raise ValueError("expected a goal that can be reached")


def boxlift(boxes: Sequence[int], lifters: Sequence[int]) -> TextAndReference:
  """Asks to lift all boxes in at most as many steps as a greedy plan takes."""
  plan = _plan_lifts(boxes, lifters)
  named = ", ".join(f"{at}: {power}" for at, power in enumerate(lifters))
  text = (
    f"Boxes of these weights wait to be lifted: {list(boxes)}. Lifters, by "
    f"number, and what each can lift: {named}. Lifters can lift a box together "
    "if their strengths add up to its weight or more. In a step each lifter "
    "takes part in one lift at most, and each box is lifted once. Lift all "
    f"boxes in at most {len(plan)} steps. Name a box by its weight and then "
    "its lifters, as\n<<<Step 1: [(50, [0, 2]), (20, [1])]\n"
    "Step 2: [(40, [0, 1])]>>>"
  )
  answer = "\n".join(
    f"Step {at}: [{', '.join(f'({box}, {team})' for box, team in step)}]"
    for at, step in enumerate(plan, 1)
  )
  return text, {
    "answer": answer,
    "boxes": list(boxes),
    "lifters": list(lifters),
    "steps": len(plan),
  }


def _plan_lifts(
  boxes: Sequence[int], lifters: Sequence[int]
) -> list[list[tuple[int, list[int]]]]:
  """Returns a greedy plan: [(box, lifters), ...] for each step.

  Heavier boxes come first. The weakest team of free lifters that is strong
  enough lifts each box.
  """
  if not boxes or not lifters or max(boxes) > sum(lifters):
    raise ValueError("expected lifters that can lift the heaviest box")
  waiting, plan = sorted(boxes, reverse=True), []
  while waiting:
    free, step, left = set(range(len(lifters))), [], []
    for box in waiting:
      teams = (
        team
        for size in range(1, len(free) + 1)
        for team in itertools.combinations(sorted(free), size)
      )
      strengths = {team: sum(lifters[i] for i in team) for team in teams}
      able = [team for team, power in strengths.items() if power >= box]
      if not able:
        left.append(box)
        continue
      team = min(able, key=lambda team: (strengths[team], len(team)))
      step.append((box, list(team)))
      free -= set(team)
    waiting = left
    plan.append(step)
  return plan


def boxnet(cells: Mapping[str, Sequence[str]]) -> TextAndReference:
  """Asks to move boxes on a grid to targets of the same color."""
  listed = "\n".join(
    f"Agent[{name.replace('_', ', ')}]: {', '.join(inside) or 'nothing'}"
    for name, inside in cells.items()
  )
  text = (
    "A grid of squares has one agent in the middle of each. In a step an agent "
    "can move one box of its square, either into a square beside it (not "
    "diagonally) or onto a target of the box's colour in its own square; box "
    "and target are then gone. Agents move at the same time, and a box can be "
    "moved on in the next step at the earliest. Bring every box to a target. "
    f"These squares hold:\n{listed}\n\nGive the steps as a list, as\n"
    '<<<[{"Agent[0.5, 0.5]": "move(box_blue, square[0.5, 1.5])"}, '
    '{"Agent[0.5, 1.5]": "move(box_blue, target_blue)", '
    '"Agent[1.5, 0.5]": "move(box_red, target_red)"}]>>>'
  )
  steps = ", ".join(
    f'{{"Agent[{", ".join(at)}]": "move({box}, {to})"}}'
    for at, box, to in _plan_moves(cells)
  )
  world = {name: list(inside) for name, inside in cells.items()}
  return text, {"answer": f"[{steps}]", "cells": world}


def _plan_moves(
  cells: Mapping[str, Sequence[str]],
) -> list[tuple[tuple[str, ...], str, str]]:
  """Returns moves (square, box, destination) that carry one box after another.

  A box moves along the first coordinate, then along the second one.
  """
  targets = [
    (tuple(name.split("_")), inside.removeprefix("target_"))
    for name, contents in cells.items()
    for inside in contents
    if inside.startswith("target_")
  ]
  moves = []
  for name, contents in cells.items():
    for box in contents:
      if not box.startswith("box_"):
        continue
      colour = box.removeprefix("box_")
      target = next((t for t in targets if t[1] == colour), None)
      if target is None:
        raise ValueError(f"expected a target for {box}")
      targets.remove(target)
      at = tuple(name.split("_"))
      for axis in (0, 1):
        while at[axis] != target[0][axis]:
          step = 1.0 if float(target[0][axis]) > float(at[axis]) else -1.0
          neighbour = [*at]
          neighbour[axis] = str(float(at[axis]) + step)
          moves.append((at, box, f"square[{', '.join(neighbour)}]"))
          at = tuple(neighbour)
      moves.append((at, box, f"target_{colour}"))
  if targets:
    raise ValueError("expected as many targets as boxes of each colour")
  return moves
