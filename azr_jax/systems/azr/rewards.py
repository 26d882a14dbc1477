"""AZR's rewards: learnability (eq. 4), correctness (5), composite (6).

The reward of a valid proposal is a function of the solve rate of its rollouts
(`systems/proposer_rewards.py`).

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
from collections.abc import Sequence
from typing import Self

from azr_jax.grading.outcome import Outcome
from azr_jax.systems.azr.extensions.intrinsic import IntrinsicRewards
from azr_jax.systems.proposer_rewards import PROPOSER_REWARDS


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
    guide_weight: the share of a proposal's reward that depends on the guide's
      grades (`extensions/guide.py`).
    intrinsic: the intrinsic rewards of valid proposals (appendix D.4).
  """

  unlearnable: float
  wrong: float
  bad_format: float
  proposer: str = "learnability"
  repetition: float = 0.0
  repetition_distance: float = 0.5
  guide_weight: float = 0.0
  intrinsic: IntrinsicRewards | None = None


# `azr.unlearnable_reward` -> the reward.
UNLEARNABLE_REWARDS = {"paper": 0.0, "published_code": -0.5}


@dataclasses.dataclass(frozen=True)
class Solved:
  """Counts of a proposal's learnability rollouts by outcome.

  Attributes:
    correct, incorrect: the numbers of graded rollouts.
    undecided: the number of rollouts whose grading timed out or was lost.
    guessed: the solve rate that guessing reaches. Rates up to it count as 0.
  """

  correct: int
  incorrect: int
  undecided: int = 0
  guessed: float = 0.0

  @classmethod
  def of(cls, outcomes: Sequence[Outcome], guessed: float = 0.0) -> Self:
    """Counts the outcomes of rollouts."""
    correct = sum(map(bool, outcomes))
    undecided = sum(outcome.is_undecided for outcome in outcomes)
    incorrect = len(outcomes) - correct - undecided
    return cls(correct, incorrect, undecided, guessed)

  @property
  def total(self) -> int:
    """The number of rollouts."""
    return self.correct + self.incorrect + self.undecided

  @property
  def rate(self) -> float | None:
    """r-bar over the decided rollouts; None if there are none."""
    decided = self.correct + self.incorrect
    return self.correct / decided if decided else None


def min_reward(solved: Solved, name: str) -> float:
  """Returns the minimum reward over all outcomes of undecided rollouts.

  Args:
    solved: the rollouts, at least one.
    name: a key of `PROPOSER_REWARDS`.
  """
  reward = PROPOSER_REWARDS[name]
  rates = [
    (solved.correct + hidden) / solved.total
    for hidden in range(solved.undecided + 1)
  ]
  return min(reward(r if r > solved.guessed else 0.0) for r in rates)


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
