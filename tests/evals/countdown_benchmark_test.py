"""The puzzles of the benchmark `countdown`: sizes and split."""

import numpy as np
import pytest

from azr_jax.evals import countdown
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import generator


def puzzles(data):
  return [
    Puzzle(tuple(item.reference["nums"]), item.reference["target"])
    for item in countdown.read(data)
  ]


def test_puzzles_of_one_size_are_those_of_the_test_split():
  both = puzzles("")
  for size in generator.COUNTS:
    chosen = puzzles(f"numbers:{size}")
    assert chosen == [p for p in both if len(p.numbers) == size]
    assert len(chosen) >= 300 and all(map(generator.is_test, chosen))


def test_items_of_one_size_have_ids_of_their_own():
  items = countdown.read("numbers:3")
  assert len({item.id for item in items}) == len(items)


def test_a_size_without_puzzles_is_refused():
  with pytest.raises(ValueError, match="numbers:3 or numbers:4"):
    countdown.read("numbers:5")


def test_pass_rates_by_thirds_of_the_solver_s_difficulty():
  """Section 3.1: the SFT model's pass rates fall from easy to hard."""
  items = countdown.read("")[:300]
  scores = np.array([item.reference["difficulty"] for item in items])
  order = np.argsort(scores, kind="stable")
  correct = np.zeros((300, 2), bool)
  correct[order[:90]] = True  # inside the easiest third
  correct[order[150:156], 0] = True  # inside the middle third
  found = countdown.summarize(items, correct, [["", ""]] * 300)
  low, high = np.quantile(scores, [1 / 3, 2 / 3])
  counts = [(scores <= low).sum(), (scores >= high).sum()]
  assert found["pass@1/easy"] == pytest.approx(90 / counts[0])
  middle = 300 - sum(counts)
  assert found["pass@1/medium"] == pytest.approx(6 / 2 / middle)
  assert found["pass@1/hard"] == 0
