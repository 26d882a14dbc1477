"""Rewards of a proposed task as functions of p, its solve rate.

| name | reward | 0 at | highest at |
| --- | --- | --- | --- |
| `learnability` | 1 - p, and 0 at p = 0 (AZR, eq. 4) | 0, 1 | just above 0 |
| `difficulty` | 1 - p (Survive or Collapse, arXiv 2605.22217) | 1 | 0 |
| `variance` | p (1 - p), the variance (arXiv 2502.12272) | 0, 1 | 1/2 |
| `uncertainty` | 1 - 2 abs(p - 1/2) (R-Zero, arXiv 2508.05004) | 0, 1 | 1/2 |
"""

from collections.abc import Callable


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
      agree with the majority answer (`systems/azr/extensions/labels.py`).
  """
  return 1.0 - 2.0 * abs(solve_rate - 0.5)


# Name -> reward as a function of the solve rate.
PROPOSER_REWARDS: dict[str, Callable[[float], float]] = {
  "learnability": learnability,
  "difficulty": difficulty,
  "variance": variance,
  "uncertainty": uncertainty,
}
