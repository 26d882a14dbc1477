"""Difficulty of puzzles, a score in [0, 1] computed from their solutions.

The Countdown paper (section 3.1) names the features but not their weights. The
weights here are chosen so that pass rates of real models fall as the score
rises: on the 50 test puzzles of the course behind the paper, the Spearman
correlation with the pass rates of three 0.5B models is -0.68 to -0.76.

| feature | weight | value 0 | value 1 |
| --- | --- | --- | --- |
| numbers beyond three | 0.25 | three | four |
| few solutions | 0.20 | 24 or more | none |
| expensive cheapest solution | 0.15 | additions only | 2.2 times that |
| no solution with only + and - | 0.20 | | |
| every solution divides | 0.08 | | |
| every solution needs a fraction | 0.06 | | |
| every solution needs a negative value | 0.03 | | |
| many near misses | 0.08 | none | 200 or more |
| two of the numbers reach the target | -0.05 | | |

Generated puzzles have a solution without fractions and negative values, so
these two features are 0 for them.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import solver

BUCKETS = ("easy", "medium", "hard")
# Values at which features saturate.
_MANY_SOLUTIONS = 24
_MAX_NEAR = 200
_MAX_EXTRA_COST = 1.2  # Extra cost relative to a solution of additions only.


def score(analysis: solver.Analysis, count: int) -> Float[np.ndarray, " rows"]:
  """Returns the difficulty of puzzles with `count` numbers.

  Scores of unsolvable puzzles are meaningless.
  """
  additions = count - 1
  few_solutions = 1 - np.minimum(
    1, np.log1p(analysis.num_solutions) / np.log1p(_MANY_SOLUTIONS)
  )
  extra = np.where(np.isfinite(analysis.cost), analysis.cost, 0) - additions
  costly = np.minimum(1, extra / (_MAX_EXTRA_COST * additions))
  near = np.minimum(1, np.log1p(analysis.near) / np.log1p(_MAX_NEAR))
  return np.clip(
    0.25 * (count - 3)
    + 0.20 * few_solutions
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


def score_puzzles(puzzles: Sequence[Puzzle]) -> Float[np.ndarray, " puzzles"]:
  """Returns each puzzle's difficulty; nan if unsolvable."""
  scores = np.full(len(puzzles), np.nan)
  counts = np.array([len(puzzle.numbers) for puzzle in puzzles])
  for count in np.unique(counts):
    rows = np.flatnonzero(counts == count).tolist()
    analysis = solver.analyse(
      np.array([puzzles[row].numbers for row in rows]),
      np.array([puzzles[row].target for row in rows]),
    )
    solved = analysis.num_solutions > 0
    scores[rows] = np.where(solved, score(analysis, int(count)), np.nan)
  return scores


def thresholds(scores: Float[np.ndarray, " puzzles"]) -> tuple[float, float]:
  """Returns the 1/3 and 2/3 quantiles of the scores."""
  low, high = np.quantile(scores, [1 / 3, 2 / 3])
  return float(low), float(high)


def buckets(
  scores: Float[np.ndarray, " puzzles"], thresholds: tuple[float, float]
) -> Int[np.ndarray, " puzzles"]:
  """Returns the index of each puzzle's bucket in `BUCKETS`.

  Args:
    thresholds: the highest easy difficulty and the lowest hard one.
  """
  low, high = thresholds
  return np.where(scores <= low, 0, np.where(scores >= high, 2, 1))
