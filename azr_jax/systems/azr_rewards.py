"""AZR's rewards: learnability (eq. 4), correctness (5), composite (6)."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from azr_jax import types


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
  """Eq. 6 for a proposer."""
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


def step_metrics(
  trajectories: Sequence[types.Trajectory], prefix: str
) -> dict[str, float]:
  """Reward, token length, count and accuracy per task type and role."""
  metrics: dict[str, float] = {}
  for group in dict.fromkeys(t.baseline_group for t in trajectories):
    own = [t for t in trajectories if t.baseline_group == group]
    assert isinstance(group, tuple)
    name = "/".join((prefix, *group))
    lengths = [len(t.completion.token_ids) for t in own]
    truncated = [t.completion.finish_reason == "length" for t in own]
    metrics[f"reward/{name}/mean"] = float(np.mean([t.reward for t in own]))
    metrics[f"reward/{name}/std"] = float(np.std([t.reward for t in own]))
    metrics[f"tokens/{name}/mean"] = float(np.mean(lengths))
    metrics[f"tokens/{name}/truncated_share"] = float(np.mean(truncated))
    metrics[f"count/{name}"] = float(len(own))
    for key in ("correct", "formatted"):
      values = [t.metrics[key] for t in own if key in t.metrics]
      if values:
        metrics[f"{key}/{name}/mean"] = float(np.mean(values))
  return metrics
