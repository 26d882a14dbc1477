"""Rewards of a proposal for what its program is like (AZR, appendix D.4)."""

import math
from collections.abc import Callable, Mapping, Sequence

from azr_jax.tasks.programs import measures

# Reward of a program from its metrics (`program_metrics.py`), from 0 to 1.
INTRINSIC: dict[str, Callable[[Mapping[str, float]], float]] = {
  "complexity": lambda m: min(m["cognitive"] / 15, 1.0),
  "halstead": lambda m: measures.halstead_score(
    m["effort"], m["cyclomatic"], m["volume"]
  ),
  "maintainability": lambda m: 1.0 - m["maintainability"] / 100,
  "distance": lambda m: m["distance"],
  "answer_diversity": lambda m: m["answer_diversity"],
}
# (learnability, weighted intrinsic rewards) -> reward: eq. 11, 12, 13, 14.
AGGREGATIONS: dict[str, Callable[[float, Sequence[float]], float]] = {
  "sum": lambda r, parts: r + sum(parts),
  "times_sum": lambda r, parts: r * sum(parts),
  "times_product": lambda r, parts: r * math.prod(parts),
  "plus_product": lambda r, parts: r + math.prod(parts),
}


def reward(
  learnability: float,
  program_metrics: Mapping[str, float],
  weights: Mapping[str, float],
  aggregation: str,
) -> float:
  """Joins learnability with the intrinsic rewards of a program.

  Args:
    learnability: eq. 4, of a proposal that is solved sometimes.
    program_metrics: what was measured of the program. An induction task has
      no program of its own, so its intrinsic rewards are 0.
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
