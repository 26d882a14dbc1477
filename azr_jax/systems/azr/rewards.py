"""AZR's rewards: learnability (eq. 4), correctness (5), composite (6).

The reward of a valid proposal is a function of p, the fraction of its rollouts
that are correct. `PROPOSER_REWARDS` holds AZR's function and those of other
papers:

| name | reward | 0 at | highest at |
| --- | --- | --- | --- |
| `learnability` | 1 - p, and 0 at p = 0 (AZR, eq. 4) | 0, 1 | just above 0 |
| `difficulty` | 1 - p (Survive or Collapse, arXiv 2605.22217) | 1 | 0 |
| `variance` | p (1 - p), the variance (arXiv 2502.12272) | 0, 1 | 1/2 |
| `uncertainty` | 1 - 2 abs(p - 1/2) (R-Zero, arXiv 2508.05004) | 0, 1 | 1/2 |

Timeouts: in abduction the proposer's program runs on the solver's input, in
induction the solver's program on the proposer's inputs.

* For the solver, a timeout is incorrect. The solver chose the input or wrote
  the program, and its limit is a multiple of the time that the task itself was
  allowed (`executor.validation_fraction`).
* For the proposer, a timeout is undecided, and so is a lost process. A timeout
  does not show that a task is hard; otherwise slow programs would be rewarded.
  A proposal with undecided rollouts earns the minimum of its reward over all
  possible outcomes of these rollouts. It never earns more than if they were
  correct. With `learnability` it earns nothing unless at least one rollout was
  correct and one incorrect.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Self

from azr_jax.grading.outcome import Outcome
from azr_jax.systems.azr.extensions.intrinsic import IntrinsicRewards


@dataclasses.dataclass(frozen=True)
class RewardRules:
  """The values of the composite reward.

  Attributes:
    unlearnable: the reward of a valid proposal where `proposer` gives 0: 0 in
      the paper (eq. 4), -0.5 in the published code.
    wrong: the reward of a well-formed wrong answer.
    bad_format: the reward of a malformed response or an invalid proposal.
    proposer: the reward function of a valid proposal, a key of
      `PROPOSER_REWARDS`.
    repetition, repetition_distance: the repetition penalty and its distance
      threshold (`extensions/repetition.py`). A penalty of 0 disables it.
    intrinsic: the intrinsic rewards of valid proposals (appendix D.4).
  """

  unlearnable: float
  wrong: float
  bad_format: float
  proposer: str = "learnability"
  repetition: float = 0.0
  repetition_distance: float = 0.5
  intrinsic: IntrinsicRewards | None = None


# `azr.unlearnable_reward` -> the reward.
UNLEARNABLE_REWARDS = {"paper": 0.0, "published_code": -0.5}


@dataclasses.dataclass(frozen=True)
class Solved:
  """Counts of a proposal's learnability rollouts by outcome.

  Attributes:
    correct, incorrect: the numbers of graded rollouts.
    undecided: the number of rollouts whose grading timed out or was lost.
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
  """Returns r_propose (AZR, eq. 4): 1 - solve_rate, but 0 at 0 and 1.

  Args:
    solve_rate: r-bar, the mean accuracy of the solver's rollouts, in [0, 1].
  """
  return 0.0 if solve_rate in (0.0, 1.0) else 1.0 - solve_rate


def difficulty(solve_rate: float) -> float:
  """Returns 1 - p, which is highest for tasks that are never solved.

  This is the proposer's reward in Survive or Collapse (arXiv 2605.22217).

  Args:
    solve_rate: p, in [0, 1].
  """
  return 1.0 - solve_rate


def variance(solve_rate: float) -> float:
  """Returns p (1 - p), the variance of one rollout's correctness.

  Learning to Reason at the Frontier of Learnability (arXiv 2502.12272) calls
  this learnability and samples questions by it.

  Args:
    solve_rate: p, in [0, 1].
  """
  return solve_rate * (1.0 - solve_rate)


def uncertainty(solve_rate: float) -> float:
  """Returns 1 - 2 abs(p - 1/2) (R-Zero, arXiv 2508.05004).

  Args:
    solve_rate: p, in [0, 1]. In R-Zero this is the fraction of rollouts that
      agree with the majority answer (`extensions/labels.py`).
  """
  return 1.0 - 2.0 * abs(solve_rate - 0.5)


# `azr.proposer_reward` -> reward as a function of the solve rate.
PROPOSER_REWARDS: dict[str, Callable[[float], float]] = {
  "learnability": learnability,
  "difficulty": difficulty,
  "variance": variance,
  "uncertainty": uncertainty,
}


def min_reward(solved: Solved, name: str) -> float:
  """Returns the minimum reward over all outcomes of undecided rollouts.

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
    solved: the learnability rollouts. None if the proposal is invalid or its
      response malformed.
    rules: the values of the composite reward.
    penalty: the repetition penalty (`extensions/repetition.py`). It reduces
      positive rewards to no less than 0, as in R-Zero; other rewards are
      unchanged.
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
