"""Worked solutions of puzzles, as a person might write them, for warm starts.

| style | how the target is found |
| --- | --- |
| `direct` | one step after the other, each right |
| `search` | depth first; dead ends are followed, given up and taken back |
| `backward` | the last step is undone first; the rest give what it needs |
| `guess` | whole expressions are tried until one is right |

Values on the way are natural numbers up to `LARGEST`.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import solver

STYLES = ("direct", "search", "backward", "guess")
LARGEST = 999
# Wrong tries before a right one: few, for a reply has to end.
_MOST_TRIES = 3


@dataclasses.dataclass(frozen=True)
class Step:
  """Two natural numbers, combined to a third."""

  left: int
  operator: str
  right: int
  result: int

  def __str__(self) -> str:
    return f"{self.left}{self.operator}{self.right}={self.result}"


def choose_path(
  puzzle: Puzzle, paths: np.ndarray, rng: np.random.Generator
) -> solver.Term | None:
  """A natural solution with small values, one of the cheapest of the first.

  Args:
    puzzle: the puzzle.
    paths: its natural paths.
    rng: draws among them.
  """
  terms = [solver.term(puzzle.numbers, int(path)) for path in paths[:64]]
  fitting = [term for term in terms if _largest(term) <= LARGEST]
  if not fitting:
    return None
  cheapest = min(map(_cost, fitting))
  best = [term for term in fitting if _cost(term) == cheapest]
  return best[rng.integers(len(best))]


def _largest(term: solver.Term) -> int:
  parts = [part for part in (term.left, term.right) if part is not None]
  return max([int(term.value), *map(_largest, parts)])


def _cost(term: solver.Term) -> float:
  if term.left is None or term.right is None:
    return 0.0
  own = solver.COSTS[term.operator]
  return round(own + _cost(term.left) + _cost(term.right), 6)


def steps(term: solver.Term) -> list[Step]:
  """The operations of a solution, in the order they are done."""
  if term.left is None or term.right is None:
    return []
  own = Step(
    int(term.left.value), term.operator, int(term.right.value), int(term.value)
  )
  return [*steps(term.left), *steps(term.right), own]


def write(
  puzzle: Puzzle,
  term: solver.Term,
  style: str,
  try_share: float,
  rng: np.random.Generator,
) -> str:
  """Writes the thinking that leads to a solution, in one of `STYLES`."""
  if style == "search":
    return _search(puzzle, steps(term), try_share, rng)
  if style == "guess":
    return _guess(puzzle, term, try_share, rng)
  if style == "backward":
    return _backward(puzzle, steps(term))
  return _forward(puzzle.numbers, steps(term))


def shown(numbers: Sequence[int]) -> str:
  """Numbers as prompts and solutions show them."""
  return "[" + " ".join(map(str, numbers)) + "]"


def answer(term: solver.Term) -> str:
  """The solution's expression without spaces."""
  return term.expression.replace(" ", "")


def apply(numbers: Sequence[int], step: Step) -> list[int]:
  """The numbers that are left after a step, its result last."""
  left = list(numbers)
  left.remove(step.left)
  left.remove(step.right)
  return [*left, step.result]


def moves(numbers: Sequence[int]) -> list[Step]:
  """Every step from these numbers that stays natural and small."""
  found = []
  for a, b in itertools.combinations(numbers, 2):
    high, low = max(a, b), min(a, b)
    found.append(Step(a, "+", b, a + b))
    found.append(Step(high, "-", low, high - low))
    found.append(Step(a, "*", b, a * b))
    if low and high % low == 0:
      found.append(Step(high, "/", low, high // low))
  return [step for step in found if step.result <= LARGEST]


def _forward(numbers: Sequence[int], path: Sequence[Step]) -> str:
  """Steps with the numbers that are left after each but the last."""
  words = [shown(numbers)]
  for step in path:
    numbers = apply(numbers, step)
    words.append(str(step))
    if len(numbers) > 1:
      words.append(shown(numbers))
  return " ".join([*words, "yes"])


def _tries(share: float, rng: np.random.Generator) -> int:
  count = 0
  while count < _MOST_TRIES and rng.random() < share:
    count += 1
  return count


def _search(
  puzzle: Puzzle, path: Sequence[Step], share: float, rng: np.random.Generator
) -> str:
  numbers: list[int] = list(puzzle.numbers)
  words = [shown(numbers)]
  for step in path:
    for _ in range(_tries(share, rng)):
      dead = _dead_end(numbers, step, puzzle.target, rng)
      if dead is not None:
        words += [dead, "no", shown(numbers)]
    numbers = apply(numbers, step)
    words.append(str(step))
    if len(numbers) > 1:
      words.append(shown(numbers))
  return " ".join([*words, "yes"])


def _dead_end(
  numbers: Sequence[int],
  right: Step,
  target: int,
  rng: np.random.Generator,
) -> str | None:
  """Random steps to a single number that is not the target."""
  words: list[str] = []
  while len(numbers) > 1:
    possible = [step for step in moves(numbers) if words or step != right]
    if not possible:
      return None
    step = possible[rng.integers(len(possible))]
    numbers = apply(numbers, step)
    words.append(str(step))
    if len(numbers) > 1:
      words.append(shown(numbers))
  return None if numbers[0] == target else " ".join(words)


def _backward(puzzle: Puzzle, path: Sequence[Step]) -> str:
  """Undoes the last step, if one side of it is one of the numbers."""
  last = path[-1]
  for known, missing in ((last.right, last.left), (last.left, last.right)):
    if len(path) > 1 and known in puzzle.numbers and _alone(path, known):
      rest = list(puzzle.numbers)
      rest.remove(known)
      return f"{last} needs {missing} {_forward(rest, path[:-1])}"
  return _forward(puzzle.numbers, path)


def _alone(path: Sequence[Step], known: int) -> bool:
  """Whether the last step takes a number itself, not a result like it."""
  return all(known != step.result for step in path[:-1])


def _guess(
  puzzle: Puzzle, term: solver.Term, share: float, rng: np.random.Generator
) -> str:
  """Expressions of the right numbers, the last of which is right."""
  words = []
  for _ in range(_tries(share, rng)):
    wrong = _random_term(puzzle.numbers, rng)
    if wrong is not None and wrong.value != puzzle.target:
      words += [f"{answer(wrong)}={wrong.value}", "no"]
  return " ".join([*words, f"{answer(term)}={term.value}", "yes"])


def _random_term(
  numbers: Sequence[int], rng: np.random.Generator
) -> solver.Term | None:
  """A natural expression of all numbers."""
  terms = [solver.term((number,), 0) for number in numbers]
  while len(terms) > 1:
    possible = [
      (one, two, operator)
      for one, two in itertools.permutations(range(len(terms)), 2)
      for operator in solver.APPLY
      if _is_natural(terms[one], terms[two], operator)
    ]
    if not possible:
      return None
    one, two, operator = possible[rng.integers(len(possible))]
    made = solver.combine(terms[one], terms[two], operator)
    terms = [t for i, t in enumerate(terms) if i not in (one, two)] + [made]
  return terms[0]


def _is_natural(left: solver.Term, right: solver.Term, operator: str) -> bool:
  if operator == "/" and right.value == 0:
    return False
  value = solver.APPLY[operator](left.value, right.value)
  return value.denominator == 1 and 0 <= value <= LARGEST
