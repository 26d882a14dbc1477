"""AZR's rewards: learnability (eq. 4), correctness (5), composite (6).

What a valid proposal earns is a function of p, the fraction of its rollouts
that are right. `PROPOSER_REWARDS` has AZR's and those of other papers:

| name | reward | 0 at | highest at |
| --- | --- | --- | --- |
| `learnability` | 1 - p, and 0 at p = 0 (AZR, eq. 4) | 0, 1 | just above 0 |
| `difficulty` | 1 - p (Survive or Collapse, arXiv 2605.22217) | 1 | 0 |
| `variance` | p (1 - p), of a right answer (arXiv 2502.12272) | 0, 1 | 1/2 |
| `uncertainty` | 1 - 2 abs(p - 1/2) (R-Zero, arXiv 2508.05004) | 0, 1 | 1/2 |

Who answers for a timeout: in abduction the proposer's program runs on the
solver's input, in induction the solver's program on the proposer's inputs.

* To the solver it is wrong. The solver chose the input or wrote the program,
  and the limit is a multiple of what the task itself was allowed
  (`executor.validation_fraction`).
* To the proposer it is undecided, as is a process that was lost: that a limit
  ended a rollout does not show that the task is hard, or slow programs would
  pay. A proposal with undecided rollouts earns the least that its reward gives
  for anything that these may have been. So it never earns more than if they
  were right; with `learnability` it earns nothing unless one rollout was seen
  to be right and one wrong.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Self

from azr_jax.grading.outcome import Outcome


@dataclasses.dataclass(frozen=True)
class RewardRules:
  """The values of the composite reward.

  Attributes:
    unlearnable: reward of a valid proposal where `proposer` gives 0: 0 in the
      paper (eq. 4), -0.5 in the published code.
    wrong: reward of a well-formed wrong answer.
    bad_format: reward of a response that is not well formed, or of a proposal
      that is not valid.
    proposer: the reward of a valid proposal, a key of `PROPOSER_REWARDS`.
  """

  unlearnable: float
  wrong: float
  bad_format: float
  proposer: str = "learnability"


# `azr.unlearnable_reward` -> the reward.
UNLEARNABLE_REWARDS = {"paper": 0.0, "published_code": -0.5}


@dataclasses.dataclass(frozen=True)
class Solved:
  """How many of a proposal's learnability rollouts are right, and how many not.

  Attributes:
    correct, incorrect: numbers of rollouts.
    undecided: number of rollouts whose grading a limit ended.
  """

  correct: int
  incorrect: int
  undecided: int = 0

  @classmethod
  def of(cls, outcomes: Sequence[Outcome]) -> Self:
    """Counts the outcomes of rollouts."""
    correct = sum(map(bool, outcomes))
    undecided = sum(outcome.is_undecided for outcome in outcomes)
    return cls(correct, len(outcomes) - correct - undecided, undecided)

  @property
  def total(self) -> int:
    """The number of rollouts."""
    return self.correct + self.incorrect + self.undecided

  @property
  def rate(self) -> float | None:
    """r-bar over the decided rollouts; None if there are none."""
    decided = self.correct + self.incorrect
    return self.correct / decided if decided else None


def learnability(solve_rate: float) -> float:
  """Returns r_propose (AZR, eq. 4): 0 if solve_rate is 0 or 1, else 1 - it.

  Args:
    solve_rate: r-bar, the mean accuracy of the solver's rollouts, in [0, 1].
  """
  return 0.0 if solve_rate in (0.0, 1.0) else 1.0 - solve_rate


def difficulty(solve_rate: float) -> float:
  """Returns 1 - p, which a task that is never solved earns whole.

  It is the proposer's reward of Survive or Collapse (arXiv 2605.22217).

  Args:
    solve_rate: p, in [0, 1].
  """
  return 1.0 - solve_rate


def variance(solve_rate: float) -> float:
  """Returns p (1 - p), the variance of one rollout's correctness.

  It is the learnability of Learning to Reason at the Frontier of Learnability
  (arXiv 2502.12272), which samples questions by it.

  Args:
    solve_rate: p, in [0, 1].
  """
  return solve_rate * (1.0 - solve_rate)


def uncertainty(solve_rate: float) -> float:
  """Returns 1 - 2 abs(p - 1/2) (R-Zero, arXiv 2508.05004).

  Args:
    solve_rate: p, in [0, 1]; in R-Zero the fraction of rollouts that agree with
      the most frequent answer (`extensions/labels.py`).
  """
  return 1.0 - 2.0 * abs(solve_rate - 0.5)


# `azr.proposer_reward` -> the reward by the solve rate.
PROPOSER_REWARDS: dict[str, Callable[[float], float]] = {
  "learnability": learnability,
  "difficulty": difficulty,
  "variance": variance,
  "uncertainty": uncertainty,
}


def min_reward(solved: Solved, name: str) -> float:
  """Returns the least reward over what undecided rollouts may have been.

  Args:
    solved: the rollouts, at least one.
    name: a key of `PROPOSER_REWARDS`.
  """
  reward = PROPOSER_REWARDS[name]
  return min(
    reward((solved.correct + hidden) / solved.total)
    for hidden in range(solved.undecided + 1)
  )


def proposal_reward(
  solved: Solved | None, rules: RewardRules, penalty: float = 0.0
) -> float:
  """Returns a proposer's composite reward (AZR, eq. 6 with eq. 4).

  Args:
    solved: the learnability rollouts; None if the proposal is not valid, or its
      response not well formed.
    rules: the values of the composite reward.
    penalty: subtracted because the step has similar proposals
      (`extensions/repetition.py`). Positive rewards are reduced to no less than
      0, as in R-Zero; others are unchanged.
  """
  if solved is None:
    return rules.bad_format
  reward = min_reward(solved, rules.proposer) or rules.unlearnable
  return max(min(reward, 0.0), reward - penalty)


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
