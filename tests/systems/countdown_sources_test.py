"""Puzzles from a file: sizes, bucket limits and bucket weights."""

import itertools
import json

import numpy as np
import pytest

from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.systems.countdown import sources
from azr_jax.systems.countdown.settings import CountdownSettings
from azr_jax.tasks.countdown import generator, puzzle_files


@pytest.fixture
def made(tmp_path):
  """Returns settings that read 60 puzzles of both sizes, and the puzzles."""
  puzzles = [puzzle for puzzle, _ in generator.generate(3, 60)]
  path = tmp_path / "puzzles.jsonl"
  puzzle_files.write(path, puzzles)
  difficulties = dict(zip(*puzzle_files.read(path), strict=True))
  return lambda **keys: CountdownSettings(
    puzzles=str(path), **keys
  ), difficulties


def sampled(settings):
  """Returns the puzzles of 400 draws, and their sources."""
  read = sources.read(settings, 10, print)
  items = read.curriculum.sample(1, 400, np.random.default_rng(0))
  return [read.puzzles[0][item.index] for item in items], read


def test_a_curriculum_has_puzzles_of_the_sizes_alone(made):
  settings, _ = made
  assert {len(p.numbers) for p in sampled(settings())[0]} == {3, 4}
  assert {len(p.numbers) for p in sampled(settings(sizes=(3,)))[0]} == {3}


def test_limits_and_weights_choose_puzzles_by_difficulty(made):
  settings, difficulties = made
  low, high = 0.15, 0.4
  keys = {"bucket_limits": (low, high)}
  for weights, least, most in (
    ((1.0, 0.0, 0.0), 0.0, low),
    ((0.0, 1.0, 0.0), low, high),
    ((0.0, 0.0, 2.0), high, 1.0),
  ):
    puzzles, _ = sampled(settings(**keys, bucket_weights=weights))
    chosen = {difficulties[puzzle] for puzzle in puzzles}
    inside = {d for d in difficulties.values() if least <= d <= most}
    assert chosen == inside and len(chosen) > 2
  _, read = sampled(settings())
  counts = [read.buckets.count(bucket) for bucket in range(3)]
  assert min(counts) >= 15  # A third each, up to ties.


def test_buckets_by_the_pass_rate_of_a_model(made, tmp_path):
  """Section 3.1, d_SFT; puzzles without a record are left out."""
  settings, difficulties = made
  puzzles = [*difficulties][:30]
  path = tmp_path / "countdown.jsonl"
  lines = [
    {
      "reference": {"nums": list(puzzle.numbers), "target": puzzle.target},
      "correct": [sample < number % 3 for sample in range(2)],
    }
    for number, puzzle in enumerate(puzzles)
  ]
  path.write_text("".join(json.dumps(line) + "\n" for line in lines))
  keys = {"difficulty_records": str(path)}
  # Right 0, 1 and 2 times of 2: hard, medium and easy.
  for weights, number in (
    ((0.0, 0.0, 1.0), 0),
    ((0.0, 1.0, 0.0), 1),
    ((1.0, 0.0, 0.0), 2),
  ):
    chosen, _ = sampled(settings(**keys, bucket_weights=weights))
    assert {*chosen} == {*puzzles[number::3]}
  path.write_text(path.read_text().replace('"target": ', '"target": 9'))
  with pytest.raises(ValueError, match="expected records of puzzles that this"):
    sampled(settings(**keys))


@pytest.mark.parametrize(
  "keys, words",
  [
    ({"bucket_weights": (1.0, 0.0, 0.0), "curriculum": "static"}, "uniform"),
    ({"bucket_limits": (0.4, 0.2)}, "bucket_limits"),
    (
      {"bucket_limits": (-1.0, 0.5), "bucket_weights": (1.0, 0.0, 0.0)},
      "bucket",
    ),
    ({"sizes": (5,)}, "sizes"),
  ],
)
def test_what_leaves_no_puzzle_is_refused(made, keys, words):
  settings, _ = made
  with pytest.raises(ValueError, match=words):
    sources.read(settings(**keys), 10, print)


def test_a_file_s_test_puzzles_are_skipped_and_counted(tmp_path):
  trained = [puzzle for puzzle, _ in generator.generate(3, 3)]
  held_out = next(
    puzzle
    for numbers in itertools.combinations(range(1, 60), 3)
    if generator.is_test(puzzle := Puzzle(numbers, sum(numbers)))
  )
  path = tmp_path / "puzzles.jsonl"
  puzzle_files.write(path, [*trained, held_out])
  said = []
  read = sources.read(CountdownSettings(puzzles=str(path)), 10, said.append)
  assert read.puzzles == [trained]
  assert said == [
    f"{path}: skipping 1 of 4 puzzles, which belong to the test split"
  ]
  puzzle_files.write(path, trained)
  sources.read(CountdownSettings(puzzles=str(path)), 10, said.append)
  assert len(said) == 1
