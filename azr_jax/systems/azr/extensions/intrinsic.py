"""Intrinsic rewards: reward a proposal for its program (AZR, D.4).

`surprise` is the paper's reward for rare answers, relative to tasks the solver
has seen. `answer_diversity` is relative to all proposals, as in the published
code.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from azr_jax.tasks.programs import measures

# Name -> reward in [0, 1] from a program's metrics (`program_metrics.py`).
INTRINSIC: dict[str, Callable[[Mapping[str, float]], float]] = {
  "complexity": lambda m: min(m["cognitive"] / 15, 1.0),
  "halstead": lambda m: measures.halstead_score(
    m["effort"], m["cyclomatic"], m["volume"]
  ),
  "maintainability": lambda m: 1.0 - m["maintainability"] / 100,
  "distance": lambda m: m["distance"],
  "answer_diversity": lambda m: m["answer_diversity"],
  "surprise": lambda m: m["surprise"],
}
# Name -> combination of learnability and weighted intrinsic rewards: AZR, eq.
# 11 to 14 in this order.
AGGREGATIONS: dict[str, Callable[[float, Sequence[float]], float]] = {
  "sum": lambda r, parts: r + sum(parts),
  "times_sum": lambda r, parts: r * sum(parts),
  "times_product": lambda r, parts: r * math.prod(parts),
  "plus_product": lambda r, parts: r + math.prod(parts),
}


@dataclasses.dataclass(frozen=True)
class IntrinsicRewards:
  """The intrinsic rewards of a run.

  Attributes:
    weights: {name of `INTRINSIC`: weight}.
    aggregation: a name of `AGGREGATIONS`.
    only_learnable: whether only proposals with a learnability above 0 earn
      them, as in the published code, or all valid ones.
  """

  weights: Mapping[str, float]
  aggregation: str
  only_learnable: bool


def reward(
  learnability: float,
  program_metrics: Mapping[str, float],
  weights: Mapping[str, float],
  aggregation: str,
) -> float:
  """Combines learnability with intrinsic rewards.

  Args:
    learnability: the reward of eq. 4.
    program_metrics: the metrics of the program. A missing metric, as for
      induction tasks, gives an intrinsic reward of 0.
    weights: {name of `INTRINSIC`: weight}.
    aggregation: a name of `AGGREGATIONS`.
  """
  parts = []
  for name, weight in weights.items():
    try:
      parts.append(weight * INTRINSIC[name](program_metrics))
    except KeyError:
      parts.append(0.0)
  return AGGREGATIONS[aggregation](learnability, parts)
