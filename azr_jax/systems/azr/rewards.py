"""AZR's rewards: learnability (eq. 4), correctness (5), composite (6)."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class RewardRules:
  """The values of the composite reward.

  Attributes:
    unlearnable: reward of a valid proposal that the solver always or never
      solves: 0 in the paper (eq. 4), -0.5 in the published code.
    wrong: reward of a well-formed wrong answer.
    bad_format: reward of a response that is not well formed, or of a proposal
      that is not valid.
  """

  unlearnable: float
  wrong: float
  bad_format: float


# `azr.unlearnable_reward` -> the reward.
UNLEARNABLE_REWARDS = {"paper": 0.0, "published_code": -0.5}


def learnability(solve_rate: float) -> float:
  """Returns r_propose (AZR, eq. 4): 0 if solve_rate is 0 or 1, else 1 - it.

  Args:
    solve_rate: r-bar, the mean accuracy of the solver's rollouts, in [0, 1].
  """
  return 0.0 if solve_rate in (0.0, 1.0) else 1.0 - solve_rate


def proposal_reward(
  passable: bool, solve_rate: float, rules: RewardRules
) -> float:
  """Returns a proposer's composite reward (AZR, eq. 6 with eq. 4).

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
  """Returns a solver's composite reward (AZR, eq. 6 with eq. 5).

  Args:
    formatted: whether the response is well formed.
    correct: whether the answer is correct.
    rules: the values of the composite reward.
  """
  if not formatted:
    return rules.bad_format
  return 1.0 if correct else rules.wrong
