"""The puzzles of the benchmark `countdown`: sizes and split."""

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
