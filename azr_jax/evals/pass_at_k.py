"""pass@k, by both of its meanings, with standard errors over the tasks."""

import math
from collections.abc import Sequence

import numpy as np


def first_k(correct: np.ndarray, k: int) -> np.ndarray:
  """Whether any of the first k of n samples is right, [tasks, n] -> [tasks]."""
  return np.asarray(correct, bool)[:, :k].any(axis=1).astype(float)


def unbiased(correct: np.ndarray, k: int) -> np.ndarray:
  """Probability that one of k samples is right, [tasks, n] -> [tasks].

  1 - C(n - c, k) / C(n, k) for c right ones of n (Chen et al. 2021, eq. 1).
  """
  correct = np.asarray(correct, bool)
  n = correct.shape[1]
  return np.array(
    [
      1 - math.comb(n - int(c), k) / math.comb(n, k)
      for c in correct.sum(axis=1)
    ]
  )


def scores(
  correct: np.ndarray, ks: Sequence[int], prefix: str
) -> dict[str, float]:
  """Mean and standard error of both, for each k that n samples allow."""
  found = {}
  for k in ks:
    if k > correct.shape[1]:
      continue
    for name, function in (("unbiased", unbiased), ("first", first_k)):
      values = function(correct, k)
      error = (
        values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0
      )
      found[f"{prefix}/pass@{k}/{name}"] = float(values.mean())
      found[f"{prefix}/pass@{k}/{name}_error"] = float(error)
  return found
