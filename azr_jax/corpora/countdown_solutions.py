"""Chains of thought that solve Countdown puzzles, for warm starts.

| solution style | how the target is reached |
| --- | --- |
| `direct` | by the steps of a solution in order |
| `search` | by depth-first search with dead ends and backtracking |
| `backward` | the last step first, then the steps to its missing operand |
| `guess` | by whole expressions; the last one has the target value |
| `answer_only` | with an empty chain of thought |
| `value` | as in `guess`, but the answer is the target, not the expression |

The last two are habits that training should unlearn: `value` earns little, and
`answer_only` leaves no steps in which to notice a mistake.

All intermediate values are natural numbers up to `MAX_VALUE`.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import solver

SOLUTION_STYLES = (
  "direct",
  "search",
  "backward",
  "guess",
  "answer_only",
  "value",
)
MAX_VALUE = 999
# Maximum number of incorrect tries before a correct one, so that responses stay
# short.
_MAX_INCORRECT_TRIES = 3
# Number of solutions among which the cheapest is chosen. Expression trees are
# slow to build.
_MAX_SOLUTIONS = 64


@dataclasses.dataclass(frozen=True)
class Step:
  """An operation on two natural numbers with a natural result."""

  left: int
  operator: str
  right: int
  result: int

  def __str__(self) -> str:
    return f"{self.left}{self.operator}{self.right}={self.result}"


def choose_solution(
  puzzle: Puzzle,
  solutions: Int[np.ndarray, " solutions"],
  rng: np.random.Generator,
) -> solver.Term | None:
  """Returns one of the cheapest solutions with small values, or None.

  Args:
    solutions: from `solver.natural_solutions`; only the first `_MAX_SOLUTIONS`
      are considered.
    rng: breaks ties.
  """
  terms = [
    solver.term(puzzle.numbers, int(solution))
    for solution in solutions[:_MAX_SOLUTIONS]
  ]
  fitting = [term for term in terms if _max_value(term) <= MAX_VALUE]
  if not fitting:
    return None
  min_cost = min(map(_cost, fitting))
  cheapest = [term for term in fitting if _cost(term) == min_cost]
  return cheapest[rng.integers(len(cheapest))]


def _max_value(term: solver.Term) -> int:
  parts = [part for part in (term.left, term.right) if part is not None]
  return max([int(term.value), *map(_max_value, parts)])


def _cost(term: solver.Term) -> float:
  if term.left is None or term.right is None:
    return 0.0
  operation_cost = solver.COSTS[term.operator]
  return round(operation_cost + _cost(term.left) + _cost(term.right), 6)


def list_steps(term: solver.Term) -> list[Step]:
  """Returns the operations of a solution in the order of evaluation."""
  if term.left is None or term.right is None:
    return []
  last = Step(
    int(term.left.value), term.operator, int(term.right.value), int(term.value)
  )
  return [*list_steps(term.left), *list_steps(term.right), last]


def format_solution(
  puzzle: Puzzle,
  term: solver.Term,
  solution_style: str,
  incorrect_try_prob: float,
  rng: np.random.Generator,
) -> str:
  """Returns the chain of thought that leads to a solution, possibly "".

  Args:
    term: the puzzle's solution.
    solution_style: one of `SOLUTION_STYLES`.
    incorrect_try_prob: probability of an incorrect try before each correct step
      (`search`) or guess (`guess`, `value`), and again after each incorrect
      try.
    rng: draws the incorrect tries.
  """
  if solution_style == "search":
    return _search(puzzle, list_steps(term), incorrect_try_prob, rng)
  if solution_style == "answer_only":
    return ""
  if solution_style in ("guess", "value"):
    return _guess(puzzle, term, incorrect_try_prob, rng)
  if solution_style == "backward":
    return _backward(puzzle, list_steps(term))
  return _forward(puzzle.numbers, list_steps(term))


def format_numbers(numbers: Sequence[int]) -> str:
  """Returns numbers in the format of prompts and solutions."""
  return "[" + " ".join(map(str, numbers)) + "]"


def format_answer(term: solver.Term, solution_style: str = "direct") -> str:
  """Returns a solution's expression without spaces, or its value."""
  if solution_style == "value":
    return str(term.value)
  return term.expression.replace(" ", "")


def apply_step(numbers: Sequence[int], step: Step) -> list[int]:
  """Returns the remaining numbers after a step, its result last."""
  remaining = list(numbers)
  remaining.remove(step.left)
  remaining.remove(step.right)
  return [*remaining, step.result]


def possible_steps(numbers: Sequence[int]) -> list[Step]:
  """Returns all steps from these numbers with small natural results.

  Differences are taken from the larger number, so they are never negative.
  """
  candidates = []
  for a, b in itertools.combinations(numbers, 2):
    high, low = max(a, b), min(a, b)
    candidates.append(Step(a, "+", b, a + b))
    candidates.append(Step(high, "-", low, high - low))
    candidates.append(Step(a, "*", b, a * b))
    if low and high % low == 0:
      candidates.append(Step(high, "/", low, high // low))
  return [step for step in candidates if step.result <= MAX_VALUE]


def _forward(numbers: Sequence[int], steps: Sequence[Step]) -> str:
  """Returns the steps and the remaining numbers after all but the last."""
  words = [format_numbers(numbers)]
  for step in steps:
    numbers = apply_step(numbers, step)
    words.append(str(step))
    if len(numbers) > 1:
      words.append(format_numbers(numbers))
  return " ".join([*words, "yes"])


def _num_incorrect_tries(
  incorrect_try_prob: float, rng: np.random.Generator
) -> int:
  count = 0
  while count < _MAX_INCORRECT_TRIES and rng.random() < incorrect_try_prob:
    count += 1
  return count


def _search(
  puzzle: Puzzle,
  steps: Sequence[Step],
  incorrect_try_prob: float,
  rng: np.random.Generator,
) -> str:
  numbers: list[int] = list(puzzle.numbers)
  words = [format_numbers(numbers)]
  for step in steps:
    for _ in range(_num_incorrect_tries(incorrect_try_prob, rng)):
      dead_end = _dead_end(numbers, step, puzzle.target, rng)
      if dead_end is not None:
        words += [dead_end, "no", format_numbers(numbers)]
    numbers = apply_step(numbers, step)
    words.append(str(step))
    if len(numbers) > 1:
      words.append(format_numbers(numbers))
  return " ".join([*words, "yes"])


def _is_same(first: Step, second: Step) -> bool:
  """Returns whether two steps are equal up to the order of operands."""
  return (first.operator, first.result, {first.left, first.right}) == (
    second.operator,
    second.result,
    {second.left, second.right},
  )


def _dead_end(
  numbers: Sequence[int],
  correct_step: Step,
  target: int,
  rng: np.random.Generator,
) -> str | None:
  """Returns random steps that miss the target, or None if none were found.

  The first step is not `correct_step`, in either order of its operands.
  """
  words: list[str] = []
  while len(numbers) > 1:
    candidates = [
      step
      for step in possible_steps(numbers)
      if words or not _is_same(step, correct_step)
    ]
    if not candidates:
      return None
    step = candidates[rng.integers(len(candidates))]
    numbers = apply_step(numbers, step)
    words.append(str(step))
    if len(numbers) > 1:
      words.append(format_numbers(numbers))
  return None if numbers[0] == target else " ".join(words)


def _backward(puzzle: Puzzle, steps: Sequence[Step]) -> str:
  """Returns the last step first, if one of its operands is a given number.

  Otherwise returns the steps in order.
  """
  last = steps[-1]
  for known, missing in ((last.right, last.left), (last.left, last.right)):
    if len(steps) > 1 and known in puzzle.numbers and _is_given(steps, known):
      remaining = list(puzzle.numbers)
      remaining.remove(known)
      return f"{last} needs {missing} {_forward(remaining, steps[:-1])}"
  return _forward(puzzle.numbers, steps)


def _is_given(steps: Sequence[Step], known: int) -> bool:
  """Returns whether the operand is no result of an earlier step."""
  return all(known != step.result for step in steps[:-1])


def _guess(
  puzzle: Puzzle,
  term: solver.Term,
  incorrect_try_prob: float,
  rng: np.random.Generator,
) -> str:
  """Returns expressions of all numbers; the last one reaches the target."""
  words = []
  for _ in range(_num_incorrect_tries(incorrect_try_prob, rng)):
    other = _random_term(puzzle.numbers, rng)
    if other is not None and other.value != puzzle.target:
      words += [f"{format_answer(other)}={other.value}", "no"]
  return " ".join([*words, f"{format_answer(term)}={term.value}", "yes"])


def _random_term(
  numbers: Sequence[int], rng: np.random.Generator
) -> solver.Term | None:
  """Returns a random expression of all numbers with natural values, or None."""
  terms = [solver.term((number,), 0) for number in numbers]
  while len(terms) > 1:
    candidates = [
      (left, right, operator)
      for left, right in itertools.permutations(range(len(terms)), 2)
      for operator in solver.APPLY
      if _is_natural(terms[left], terms[right], operator)
    ]
    if not candidates:
      return None
    left, right, operator = candidates[rng.integers(len(candidates))]
    combined = solver.combine(terms[left], terms[right], operator)
    others = [t for i, t in enumerate(terms) if i not in (left, right)]
    terms = [*others, combined]
  return terms[0]


def _is_natural(left: solver.Term, right: solver.Term, operator: str) -> bool:
  if operator == "/" and right.value == 0:
    return False
  value = solver.APPLY[operator](left.value, right.value)
  return value.denominator == 1 and 0 <= value <= MAX_VALUE
