"""Equations 4 to 6, case by case."""

import pytest

from azr_jax.systems import azr_rewards
from azr_jax.systems.azr_rewards import RewardRules

PAPER = RewardRules(unlearnable=0.0, wrong=-0.5, bad_format=-1.0)
PUBLISHED = RewardRules(unlearnable=-0.5, wrong=-0.5, bad_format=-1.0)


@pytest.mark.parametrize(
  "solve_rate, want", [(0.0, 0.0), (0.125, 0.875), (0.5, 0.5), (1.0, 0.0)]
)
def test_learnability(solve_rate, want):
  assert azr_rewards.learnability(solve_rate) == want


@pytest.mark.parametrize(
  "passable, solve_rate, rules, want",
  [
    (False, 0.5, PAPER, -1.0),
    (True, 0.25, PAPER, 0.75),
    (True, 0.0, PAPER, 0.0),
    (True, 1.0, PAPER, 0.0),
    (True, 0.0, PUBLISHED, -0.5),
    (True, 1.0, PUBLISHED, -0.5),
    (True, 0.25, PUBLISHED, 0.75),
  ],
)
def test_proposal_reward(passable, solve_rate, rules, want):
  assert azr_rewards.proposal_reward(passable, solve_rate, rules) == want


@pytest.mark.parametrize(
  "formatted, correct, want",
  [
    (True, True, 1.0),
    (True, False, -0.5),
    (False, True, -1.0),
    (False, False, -1.0),
  ],
)
def test_solution_reward(formatted, correct, want):
  assert azr_rewards.solution_reward(formatted, correct, PAPER) == want


def test_the_named_choices_are_the_two_rules():
  assert azr_rewards.UNLEARNABLE_REWARDS == {
    "paper": PAPER.unlearnable,
    "published_code": PUBLISHED.unlearnable,
  }
