"""AZR's rewards: learnability (eq. 4), correctness (5), composite (6)."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from azr_jax import types
from azr_jax.tasks.programs import measures


@dataclasses.dataclass(frozen=True)
class RewardRules:
  """The values of the composite reward.

  Attributes:
    unlearnable: reward of a valid proposal that the solver always or never
      solves: 0 in the paper (eq. 4), -0.5 in the published code.
    wrong: reward of a well-formatted wrong answer.
    bad_format: reward of a reply that breaks the protocol; an invalid
      proposal counts as one.
    intrinsic: names of `INTRINSIC` and their weights (appendix D.4).
    aggregation: how they join learnability, one of `AGGREGATIONS`. A product
      with the measures of a program is 0 for induction, which has none.
  """

  unlearnable: float
  wrong: float
  bad_format: float
  intrinsic: tuple[tuple[str, float], ...] = ()
  aggregation: str = "sum"


# Rewards of a proposal for what its program is like, from 0 to 1.
INTRINSIC: dict[str, Callable[[Mapping[str, float]], float]] = {
  "complexity": lambda m: min(m["cognitive"] / 15, 1.0),
  "halstead": lambda m: measures.halstead_score(
    m["effort"], m["cyclomatic"], m["volume"]
  ),
  "maintainability": lambda m: 1.0 - m["maintainability"] / 100,
  "distance": lambda m: m["distance"],
  "answer_diversity": lambda m: m["answer_diversity"],
}
# Of the extrinsic reward and the intrinsic ones: eq. 11, 12, 13, 14.
AGGREGATIONS: dict[str, Callable[[float, Sequence[float]], float]] = {
  "sum": lambda r, parts: r + sum(parts),
  "times_sum": lambda r, parts: r * sum(parts),
  "times_product": lambda r, parts: r * math.prod(parts),
  "plus_product": lambda r, parts: r + math.prod(parts),
}
# The named choices of configs' `azr.unlearnable_reward`.
UNLEARNABLE_REWARDS = {"paper": 0.0, "published_code": -0.5}


def learnability(solve_rate: float) -> float:
  """Eq. 4: 0 if the solver always or never succeeds, else 1 - solve_rate."""
  return 0.0 if solve_rate in (0.0, 1.0) else 1.0 - solve_rate


def proposal_reward(
  passable: bool,
  solve_rate: float,
  rules: RewardRules,
  measured: Mapping[str, float] | None = None,
) -> float:
  """Eq. 6 for a proposer, and appendix D.4.

  Args:
    passable: whether it is valid and well formatted.
    solve_rate: of its solvers.
    rules: see there.
    measured: what `azr_measures.py` found; without what a reward needs, the
      reward is 0.
  """
  if not passable:
    return rules.bad_format
  if solve_rate in (0.0, 1.0):
    return rules.unlearnable
  extrinsic = learnability(solve_rate)
  if not rules.intrinsic:
    return extrinsic
  parts = []
  for name, weight in rules.intrinsic:
    try:
      parts.append(weight * INTRINSIC[name](measured or {}))
    except KeyError:  # An induction task has no program of its own.
      parts.append(0.0)
  return AGGREGATIONS[rules.aggregation](extrinsic, parts)


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
  for group in dict.fromkeys(t.group_id for t in trajectories):
    own = [t for t in trajectories if t.group_id == group]
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
