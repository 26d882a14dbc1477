"""Generated puzzles, splits, and puzzle files."""

import itertools
import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import dataset, difficulty, generator, puzzle_files


@pytest.fixture(scope="module")
def train():
  return [puzzle for puzzle, _ in generator.generate(0, 600)]


def test_splits_share_no_puzzle_in_any_order(train):
  test = [p for p, _ in generator.generate(0, 60, test=True)]
  assert len({p.key for p in train}) == 600
  assert not {p.key for p in train} & {p.key for p in test}
  for puzzle in train[:50]:
    for order in itertools.permutations(puzzle.numbers):
      assert not generator.is_test(Puzzle(order, puzzle.target))
  assert {len(p.numbers) for p in train} == {3, 4}
  scores = difficulty.score_puzzles(train)
  assert np.all((scores >= 0) & (scores <= 1))


def test_a_larger_pool_begins_with_the_smaller_one(train):
  assert [puzzle for puzzle, _ in generator.generate(0, 20)] == train[:20]


def test_the_dataset_is_built_and_read_with_difficulties(tmp_path, train):
  arguments = dict(seed=0, train=90, test=12, data_dir=tmp_path)
  puzzles, scores = dataset.load(**arguments, split="train")
  assert [p.key for p in puzzles] != sorted(p.key for p in puzzles)
  assert {p.key for p in puzzles} == {p.key for p in train[:90]}
  np.testing.assert_allclose(
    scores, difficulty.score_puzzles(puzzles), atol=1e-6
  )
  counts = np.bincount(
    difficulty.buckets(scores, difficulty.thresholds(scores))
  )
  assert counts.min() >= 25
  again, _ = dataset.load(**arguments, split="train")
  assert again == puzzles
  assert len(dataset.load(**arguments, split="test")[0]) == 12


@pytest.mark.parametrize(
  "name", ["puzzles.jsonl", "puzzles.json", "puzzles.parquet"]
)
def test_public_files_are_read_without_unsolvable_puzzles(tmp_path, name):
  path = tmp_path / name
  puzzles = [Puzzle((1, 2, 3), 6), Puzzle((1, 1, 1), 99)]
  if name.endswith("jsonl"):
    puzzle_files.write(path, puzzles)
  else:
    records = [{"nums": p.numbers, "target": p.target} for p in puzzles]
    path.write_text(json.dumps(records))
    if name.endswith("parquet"):
      parquet.write_table(pyarrow.Table.from_pylist(records), path)
  solvable, scores = puzzle_files.read(path)
  assert solvable == puzzles[:1] and scores.shape == (1,)
  path = tmp_path / "empty.json"
  path.write_text("[]")
  with pytest.raises(ValueError, match="expected"):
    puzzle_files.read(path)
