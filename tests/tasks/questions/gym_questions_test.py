"""reasoning-gym questions about the output of programs."""

import random
from typing import Any

import numpy as np
import training

from azr_jax.tasks.questions import gym, sources

training.needs("reasoning_gym", extra="gym")
COUNT = 60


def words():
  """Returns the state of NumPy's global generator."""
  state: Any = np.random.get_state()
  return state[1].tolist()


def test_questions_about_programs_do_not_depend_on_the_process():
  made = []
  for seed in (1, 2):
    random.seed(seed)
    np.random.seed(seed)
    before = random.getstate(), words()
    made.append(list(gym.generate("codeio", COUNT, 0)))
    after = random.getstate(), words()
    assert after == before
  first, second = made
  assert first == second
  # Programs with random output are dropped.
  assert 0.8 * COUNT < len(first) < COUNT


def test_a_generator_of_several_settings_makes_questions_of_different_ids():
  small, large = "gym:gcd(max_value=9)", "gym:gcd(min_value=100, max_value=999)"
  found = sources.read_all((f"{small}+{large}", "gym:lcm"), 5, 1)
  assert len({question.id for question in found}) == len(found)
  parts = [sources.read(spec, 5, 1) for spec in (small, large, "gym:lcm")]
  texts = sorted(question.text for part in parts for question in part)
  assert sorted(question.text for question in found) == texts
  # A small `--limit` still covers both settings.
  first = {question.text for question in found[:4]}
  assert all(first & {question.text for question in p} for p in parts[:2])
