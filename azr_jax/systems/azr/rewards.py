"""AZR's rewards: learnability (eq. 4), correctness (5), composite (6).

Who answers for a timeout: in abduction the proposer's program runs on the
solver's input, in induction the solver's program on the proposer's inputs.

* To the solver it is wrong. The solver chose the input or wrote the program,
  and the limit is a multiple of what the task itself was allowed
  (`executor.validation_fraction`).
* To the proposer it is undecided, as is a process that was lost: that a limit
  ended a rollout does not show that the task is hard, or slow programs would
  pay. A proposal with undecided rollouts earns the least that eq. 4 gives for
  anything that these may have been. So it never earns more than if they were
  right, and nothing unless one rollout was seen to be right and one wrong.
"""

import dataclasses
from collections.abc import Sequence
from typing import Self

from azr_jax.grading.outcome import Outcome


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


@dataclasses.dataclass(frozen=True)
class Solved:
  """How many of a proposal's learnability rollouts are right, and how many not.

  Attributes:
    right, wrong: numbers of rollouts.
    undecided: number of rollouts whose grading a limit ended.
  """

  right: int
  wrong: int
  undecided: int = 0

  @classmethod
  def of(cls, outcomes: Sequence[Outcome]) -> Self:
    """Counts the outcomes of rollouts."""
    right = sum(map(bool, outcomes))
    undecided = sum(outcome.is_undecided for outcome in outcomes)
    return cls(right, len(outcomes) - right - undecided, undecided)

  @property
  def total(self) -> int:
    """The number of rollouts."""
    return self.right + self.wrong + self.undecided

  @property
  def rate(self) -> float | None:
    """r-bar over the decided rollouts; None if there are none."""
    decided = self.right + self.wrong
    return self.right / decided if decided else None


def learnability(solve_rate: float) -> float:
  """Returns r_propose (AZR, eq. 4): 0 if solve_rate is 0 or 1, else 1 - it.

  Args:
    solve_rate: r-bar, the mean accuracy of the solver's rollouts, in [0, 1].
  """
  return 0.0 if solve_rate in (0.0, 1.0) else 1.0 - solve_rate


def least_learnability(solved: Solved) -> float:
  """Returns the least of eq. 4 over what undecided rollouts may have been.

  Eq. 4 falls with r-bar and is 0 at both ends, so the least is where all of
  them are wrong, or all of them right.
  """
  return min(
    learnability(right / solved.total)
    for right in (solved.right, solved.right + solved.undecided)
  )


def proposal_reward(solved: Solved | None, rules: RewardRules) -> float:
  """Returns a proposer's composite reward (AZR, eq. 6 with eq. 4).

  Args:
    solved: the learnability rollouts; None if the proposal is not valid, or its
      response not well formed.
    rules: the values of the composite reward.
  """
  if solved is None:
    return rules.bad_format
  return least_learnability(solved) or rules.unlearnable


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
