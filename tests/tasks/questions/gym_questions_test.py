"""Questions of reasoning-gym that show what programs gave."""

import random

import numpy as np
import pytest

from azr_jax.tasks.questions import gym

pytest.importorskip("reasoning_gym")
COUNT = 60


def test_questions_about_programs_do_not_depend_on_the_process():
  made = []
  for seed in (1, 2):
    random.seed(seed)
    np.random.seed(seed)
    before = random.getstate(), np.random.get_state()[1].tolist()
    made.append(list(gym.generate("codeio", COUNT, 0)))
    after = random.getstate(), np.random.get_state()[1].tolist()
    assert after == before
  first, second = made
  assert first == second
  # Nobody can know what the others drew.
  assert 0.8 * COUNT < len(first) < COUNT
