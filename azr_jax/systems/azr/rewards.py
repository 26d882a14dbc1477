"""AZR's rewards: learnability (eq. 4), correctness (5), composite (6)."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class RewardRules:
  """The values of the composite reward.

  Attributes:
    unlearnable: reward of a valid proposal that the solver always or never
      solves: 0 in the paper (eq. 4), -0.5 in the published code.
    wrong: reward of a well-formatted wrong answer.
    bad_format: reward of a reply that breaks the protocol; an invalid
      proposal counts as one.
  """

  unlearnable: float
  wrong: float
  bad_format: float


# The named choices of configs' `azr.unlearnable_reward`.
UNLEARNABLE_REWARDS = {"paper": 0.0, "published_code": -0.5}


def learnability(solve_rate: float) -> float:
  """Eq. 4: 0 if the solver always or never succeeds, else 1 - solve_rate."""
  return 0.0 if solve_rate in (0.0, 1.0) else 1.0 - solve_rate


def proposal_reward(
  passable: bool, solve_rate: float, rules: RewardRules
) -> float:
  """Returns the proposer's composite reward (eq. 6 with eq. 4).

  Args:
    passable: whether the proposal is valid and its response well formed.
    solve_rate: mean accuracy of the solvers, in [0, 1].
    rules: the values of the composite reward.
  """
  if not passable:
    return rules.bad_format
  if solve_rate in (0.0, 1.0):
    return rules.unlearnable
  return learnability(solve_rate)


def solution_reward(
  formatted: bool, correct: bool, rules: RewardRules
) -> float:
  """Eq. 5 and 6 for a solver."""
  if not formatted:
    return rules.bad_format
  return 1.0 if correct else rules.wrong
