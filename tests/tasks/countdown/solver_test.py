"""The solver agrees with brute-force search in exact arithmetic."""

import itertools
import json
import pathlib
from fractions import Fraction

import numpy as np
import pytest

from azr_jax.grading.countdown_puzzle import Puzzle, from_record
from azr_jax.tasks.countdown import difficulty, solver

# 256 puzzles of three numbers from the evaluations of the dLLM papers (d1,
# LLaDA).
CD3 = pathlib.Path(__file__).with_name("countdown_cd3_test.jsonl")


def search(items):
  """Yields all combinations of (value, negative, fractional, plus_minus)."""
  if len(items) == 1:
    yield items[0]
    return
  for size in range(1, len(items)):
    for chosen in itertools.combinations(range(1, len(items)), size - 1):
      left = [items[i] for i in (0, *chosen)]
      right = [x for i, x in enumerate(items) if i not in (0, *chosen)]
      for pair in itertools.product(search(left), search(right)):
        yield from combine(*pair)


def combine(left, right):
  a, b = left[0], right[0]
  values = [(a + b, True), (a - b, True), (b - a, True), (a * b, False)]
  values += [(a / b, False)] if b else []
  values += [(b / a, False)] if a else []
  for value, plus_minus in values:
    yield (
      value,
      left[1] or right[1] or value < 0,
      left[2] or right[2] or value.denominator != 1,
      left[3] and right[3] and plus_minus,
    )


@pytest.mark.parametrize(
  "size, count",
  [
    (2, 200),
    (3, 400),
    (4, 40),
    pytest.param(3, 1400, marks=pytest.mark.slow),
    pytest.param(4, 400, marks=pytest.mark.slow),
  ],
)
def test_it_agrees_with_a_plain_search(size, count):
  """Small numbers and targets give random puzzles with many solutions."""
  rng = np.random.default_rng(size)
  numbers = rng.integers(1, 16, (count, size))
  targets = rng.integers(1, 40, count)
  analysis = solver.analyse(numbers, targets)
  natural = solver.natural_solutions(numbers, targets)
  for row in range(count):
    target = int(targets[row])
    ways = list(
      search([(Fraction(int(n)), False, False, True) for n in numbers[row]])
    )
    hits = [way for way in ways if way[0] == target]
    near = [w for w in ways if w[0] != target and abs(w[0] - target) <= 3]
    assert analysis.num_solutions[row] == len(hits)
    assert analysis.near[row] == len(near)
    assert analysis.natural[row] == any(not (h[1] or h[2]) for h in hits)
    assert len(natural[row]) == sum(not (h[1] or h[2]) for h in hits)
    assert analysis.plus_minus[row] == any(h[3] for h in hits)
    for name, index in (("all_negative", 1), ("all_fractional", 2)):
      flag = bool(hits) and all(hit[index] for hit in hits)
      assert getattr(analysis, name)[row] == flag
    if hits:
      shown = tuple(numbers[row].tolist())
      best = solver.term(shown, int(analysis.best[row]))
      assert best.value == target == eval(best.expression)
    else:
      assert analysis.best[row] == -1 and np.isinf(analysis.cost[row])


def test_two_numbers_suffice_and_all_divide_by_hand():
  numbers = np.array([[8, 2, 3], [6, 3, 2], [50, 2, 99]])
  targets = np.array([16, 4, 25])
  analysis = solver.analyse(numbers, targets)
  # The pairs are 8 * 2, 6 - 2 and 50 / 2.
  assert analysis.two_suffice.tolist() == [True, True, True]
  analysis = solver.analyse(np.array([[12, 4, 6]]), np.array([9]))
  # The only solution is 12 / 4 + 6.
  assert analysis.all_divide.tolist() == [True]
  assert analysis.num_solutions.tolist() == [1]


def test_every_puzzle_of_a_public_set_is_solved():
  records = [json.loads(line) for line in CD3.read_text().splitlines()]
  puzzles = [from_record(record) for record in records]
  analysis = solver.analyse(
    np.array([puzzle.numbers for puzzle in puzzles]),
    np.array([puzzle.target for puzzle in puzzles]),
  )
  assert len(puzzles) == 256 and np.all(analysis.num_solutions > 0)


@pytest.mark.parametrize(
  "numbers", [[[0, 1]], [[1]], [[10**9] * 4], np.zeros((0, 3), int)]
)
def test_inputs_without_exact_values_are_refused(numbers):
  with pytest.raises(ValueError, match="expected"):
    solver.analyse(np.asarray(numbers), np.ones(len(numbers), int))


def test_a_target_that_would_overflow_is_refused():
  with pytest.raises(ValueError, match="expected"):
    solver.analyse(np.array([[4, 4, 4, 4]]), np.array([2**60]))


def test_difficulty_rises_with_the_operations_of_a_puzzle():
  puzzles = [
    Puzzle((10, 20, 30), 60),  # additions
    Puzzle((2, 30, 7), 53),  # a product
    Puzzle((84, 42, 25, 75), 52),  # a quotient, four numbers
    Puzzle((1, 1, 1), 99),  # no solution
  ]
  scores = difficulty.score_puzzles(puzzles)
  assert scores[0] < scores[1] < scores[2] <= 1
  assert np.isnan(scores[3])


def test_buckets_are_thirds_of_the_scores():
  scores = np.array([0.1, 0.2, 0.2, 0.5, 0.6, 0.6, 0.8, 0.9, 0.9])
  limits = difficulty.thresholds(scores)
  assert limits == pytest.approx(
    (np.quantile(scores, 1 / 3), np.quantile(scores, 2 / 3))
  )
  buckets = difficulty.buckets(scores, limits)
  assert buckets.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_score_at_a_limit_is_easy_or_hard():
  """Real puzzles often have equal scores, so thirds are not exact."""
  buckets = difficulty.buckets(np.array([0.1, 0.2, 0.4, 0.6, 0.7]), (0.2, 0.6))
  assert buckets.tolist() == [0, 0, 1, 2, 2]
