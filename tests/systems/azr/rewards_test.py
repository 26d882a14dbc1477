"""Equations 4 to 6, case by case."""

import pytest

from azr_jax.grading.outcome import Outcome
from azr_jax.systems import proposer_rewards
from azr_jax.systems.azr import rewards as azr_rewards
from azr_jax.systems.azr.extensions import intrinsic as intrinsic_lib
from azr_jax.systems.azr.rewards import RewardRules, Solved

PAPER = RewardRules(unlearnable=0.0, wrong=-0.5, bad_format=-1.0)
PUBLISHED = RewardRules(unlearnable=-0.5, wrong=-0.5, bad_format=-1.0)


@pytest.mark.parametrize(
  "solve_rate, want", [(0.0, 0.0), (0.125, 0.875), (0.5, 0.5), (1.0, 0.0)]
)
def test_learnability(solve_rate, want):
  assert proposer_rewards.learnability(solve_rate) == want


@pytest.mark.parametrize(
  "solved, rules, want",
  [
    (None, PAPER, -1.0),
    (Solved(2, 6), PAPER, 0.75),
    (Solved(0, 8), PAPER, 0.0),
    (Solved(8, 0), PAPER, 0.0),
    (Solved(0, 8), PUBLISHED, -0.5),
    (Solved(8, 0), PUBLISHED, -0.5),
    (Solved(2, 6), PUBLISHED, 0.75),
    # Counting the five timeouts as wrong would give 1 - 3/8 = 0.625.
    (Solved(3, 0, 5), PAPER, 0.0),
    (Solved(0, 3, 5), PAPER, 0.0),
    (Solved(0, 0, 8), PAPER, 0.0),
    (Solved(3, 2, 3), PAPER, 0.25),
    (Solved(3, 0, 5), PUBLISHED, -0.5),
    # Guessing solves a quarter.
    (Solved(1, 7, guessed=0.25), PAPER, 0.0),
    (Solved(2, 6, guessed=0.25), PAPER, 0.0),
    (Solved(3, 5, guessed=0.25), PAPER, 0.625),
    (Solved(2, 5, 1, guessed=0.25), PAPER, 0.0),
    (Solved(2, 6, guessed=0.25), PUBLISHED, -0.5),
  ],
)
def test_proposal_reward(solved, rules, want):
  assert azr_rewards.proposal_reward(solved, rules) == want


@pytest.mark.parametrize("undecided", range(9))
def test_undecided_rollouts_earn_the_least_of_what_they_may_be(undecided):
  for correct in range(9 - undecided):
    wrong = 8 - undecided - correct
    possible = [
      proposer_rewards.learnability((correct + hidden) / 8)
      for hidden in range(undecided + 1)
    ]
    solved = Solved(correct, wrong, undecided)
    least = azr_rewards.min_reward(solved, "learnability")
    assert least == min(possible)


# By hand: p = 0, 1/8, 1/4, 1/2, 3/4, 1.
RATES = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)
BY_NAME = {
  "learnability": (0.0, 0.875, 0.75, 0.5, 0.25, 0.0),
  "difficulty": (1.0, 0.875, 0.75, 0.5, 0.25, 0.0),
  "variance": (0.0, 0.109375, 0.1875, 0.25, 0.1875, 0.0),
  "uncertainty": (0.0, 0.25, 0.5, 1.0, 0.5, 0.0),
}


def test_every_reward_of_the_proposer_has_its_values():
  assert proposer_rewards.PROPOSER_REWARDS.keys() == BY_NAME.keys()
  for name, want in BY_NAME.items():
    reward = proposer_rewards.PROPOSER_REWARDS[name]
    assert tuple(map(reward, RATES)) == want


@pytest.mark.parametrize(
  "name, solved, want",
  [
    # One right, three wrong, four undecided: p is 1/8, 2/8, ... or 5/8.
    ("learnability", Solved(1, 3, 4), 0.375),
    ("difficulty", Solved(1, 3, 4), 0.375),
    ("variance", Solved(1, 3, 4), 7 / 64),
    ("uncertainty", Solved(1, 3, 4), 0.25),
    # The minimum is at an end of p's range, never at an interior 1/2.
    ("uncertainty", Solved(3, 0, 5), 0.0),
    ("difficulty", Solved(0, 8), 1.0),
    # As if it were never solved, which pays most.
    ("difficulty", Solved(2, 6, guessed=0.25), 1.0),
  ],
)
def test_the_least_reward_of_undecided_rollouts(name, solved, want):
  assert azr_rewards.min_reward(solved, name) == want


@pytest.mark.parametrize(
  "solved, rules, penalty, want",
  [
    (Solved(4, 4), PAPER, 0.125, 0.375),
    # A penalty never pushes a reward below 0.
    (Solved(4, 4), PAPER, 1.0, 0.0),
    (Solved(8, 0), PAPER, 0.5, 0.0),
    (Solved(8, 0), PUBLISHED, 0.5, -0.5),
    (None, PAPER, 0.5, -1.0),
  ],
)
def test_the_repetition_penalty_lowers_what_is_above_0(
  solved, rules, penalty, want
):
  assert azr_rewards.proposal_reward(solved, rules, penalty) == want


def test_outcomes_are_counted():
  outcomes = [Outcome.CORRECT, *Outcome, Outcome.CORRECT]
  solved = Solved.of(outcomes)
  assert solved == Solved(correct=3, incorrect=2, undecided=2)
  assert (solved.total, solved.rate) == (7, 0.6)
  assert Solved(0, 0, 8).rate is None


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


MEASURED = {
  "cognitive": 30.0,
  "effort": 5e3,
  "cyclomatic": 5.0,
  "volume": 250.0,
  "maintainability": 80.0,
  "distance": 0.4,
  "answer_diversity": 0.9,
}


@pytest.mark.parametrize(
  "weights, aggregation, reward",
  [
    # A complexity of 15 or more counts as 1.
    ({"complexity": 0.5}, "sum", 1.0),
    ({"halstead": 1.0}, "sum", 1.0),
    ({"maintainability": 1.0}, "sum", 0.7),
    ({"distance": 1.0, "answer_diversity": 0.1}, "sum", 0.99),
    ({"distance": 1.0, "answer_diversity": 0.1}, "times_sum", 0.245),
    ({"distance": 1.0, "answer_diversity": 0.1}, "times_product", 0.018),
    ({"distance": 1.0, "answer_diversity": 0.1}, "plus_product", 0.536),
  ],
)
def test_intrinsic_rewards_join_learnability(weights, aggregation, reward):
  """Equations 11 to 14, with a learnability of a half."""
  joined = intrinsic_lib.reward(0.5, MEASURED, weights, aggregation)
  assert joined == pytest.approx(reward)


def test_a_metric_that_is_missing_is_worth_nothing():
  measured = {"answer_diversity": 0.25}
  weights = {"distance": 1.0, "answer_diversity": 1.0}
  assert intrinsic_lib.reward(0.5, measured, weights, "sum") == 0.75
