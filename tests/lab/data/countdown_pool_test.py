"""Tests pools of puzzles, random and from a model without examples."""

import pytest

from azr_jax.configs import propose
from azr_jax.lab.data import countdown_pool
from azr_jax.tasks.countdown import generator, puzzle_files

MODEL = "embedded:countdown-tiny"


def test_a_random_pool_has_puzzles_of_the_training_split(tmp_path):
  path = tmp_path / "pool.jsonl"
  outcomes = countdown_pool.propose(propose.get_config(), None, str(path), 5)
  puzzles, _ = puzzle_files.read(path)
  assert len(puzzles) == outcomes["puzzles"] == 5
  assert len({puzzle.key for puzzle in puzzles}) == 5
  assert not any(map(generator.is_test, puzzles))
  assert outcomes["kept"] == 5 / outcomes["tried"]
  again = tmp_path / "again.jsonl"
  countdown_pool.propose(propose.get_config(), None, str(again), 5)
  assert again.read_text() == path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("references", [0, 2])
def test_a_model_is_asked_with_and_without_examples(tmp_path, references):
  config = propose.get_config("tiny")
  config.propose.update(prompts=2, samples=2, references=references)
  config.rollout.slots = 8
  path = str(tmp_path / "pool.jsonl")
  try:
    outcomes = countdown_pool.propose(config, MODEL, path, 9)
  except ValueError as error:
    assert "no proposal was kept" in str(error)
  else:
    assert outcomes["tried"] == 4
