"""How hard a puzzle is, from what the solver finds: a score in [0, 1].

The paper (seed 003, section 3.1) names the features and gives no weights. These
were chosen so that pass rates of real models fall along the score: on the 50
test puzzles of the course that the paper comes from, Spearman's rank
correlation with the pass rates of three 0.5B models is -0.68 to -0.76.

| feature | weight | at 0 | at 1 |
| --- | --- | --- | --- |
| numbers beyond three | 0.25 | three | four |
| few solutions | 0.20 | 24 paths or more | none |
| costly | 0.15 | additions only | 2.2 times that |
| no solution of + and - alone | 0.20 | | |
| every solution divides | 0.08 | | |
| every solution needs a fraction | 0.06 | | |
| every solution needs a negative value | 0.03 | | |
| many near misses | 0.08 | none | 200 or more |
| two of the numbers suffice | -0.05 | | |

Generated puzzles have a solution without fractions and negatives, so two
of these are for puzzles from elsewhere.
"""

from collections.abc import Sequence

import numpy as np

from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import solver

BUCKETS = ("easy", "medium", "hard")
_MANY_PATHS = 24
_MANY_NEAR = 200
_COSTLIEST = 1.2  # Cost beyond that of additions, as a share of it.


def score(analysis: solver.Analysis, count: int) -> np.ndarray:
  """Difficulty of solvable puzzles of `count` numbers, float64 [rows]."""
  additions = count - 1
  few = 1 - np.minimum(1, np.log1p(analysis.paths) / np.log1p(_MANY_PATHS))
  extra = np.where(np.isfinite(analysis.cost), analysis.cost, 0) - additions
  costly = np.minimum(1, extra / (_COSTLIEST * additions))
  near = np.minimum(1, np.log1p(analysis.near) / np.log1p(_MANY_NEAR))
  return np.clip(
    0.25 * (count - 3)
    + 0.20 * few
    + 0.15 * costly
    + 0.20 * ~analysis.plus_minus
    + 0.08 * analysis.all_divide
    + 0.06 * analysis.all_fractional
    + 0.03 * analysis.all_negative
    + 0.08 * near
    - 0.05 * analysis.two_suffice,
    0.0,
    1.0,
  )


def score_puzzles(puzzles: Sequence[Puzzle]) -> np.ndarray:
  """Difficulty of each puzzle, in order; nan where there is no solution."""
  scores = np.full(len(puzzles), np.nan)
  counts = np.array([len(puzzle.numbers) for puzzle in puzzles])
  for count in np.unique(counts):
    rows = np.flatnonzero(counts == count).tolist()
    analysis = solver.analyse(
      np.array([puzzles[row].numbers for row in rows]),
      np.array([puzzles[row].target for row in rows]),
    )
    found = score(analysis, int(count))
    scores[rows] = np.where(analysis.paths > 0, found, np.nan)
  return scores


def thresholds(scores: np.ndarray) -> tuple[float, float]:
  """The one-third and two-third quantiles of a pool's scores."""
  low, high = np.quantile(scores, [1 / 3, 2 / 3])
  return float(low), float(high)


def buckets(scores: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
  """Index into `BUCKETS`: easy up to the lower limit, hard from the upper."""
  low, high = limits
  return np.where(scores <= low, 0, np.where(scores >= high, 2, 1))
