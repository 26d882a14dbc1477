"""pass@k, unbiased or over the first k samples, with standard errors."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float


def first_k(
  correct: Bool[np.ndarray, "items samples"], k: int
) -> Float[np.ndarray, " items"]:
  """Returns 1 where any of the first k samples is correct, else 0.

  Args:
    correct: whether each sample is correct.
    k: the number of samples to use, at most as many as there are.
  """
  return correct[:, :k].any(axis=1).astype(float)


def unbiased(
  correct: Bool[np.ndarray, "items samples"], k: int
) -> Float[np.ndarray, " items"]:
  """Returns the probability that at least one of k samples is correct.

  1 - C(n - c, k) / C(n, k), where c of n samples are correct and k of the n are
  drawn without replacement (Chen et al. 2021, arXiv 2107.03374, equation 1).

  Args:
    correct: whether each of the n samples is correct.
    k: the number of samples to draw, at most n.
  """
  n = correct.shape[1]
  return np.array(
    [
      1 - math.comb(n - int(c), k) / math.comb(n, k)
      for c in correct.sum(axis=1)
    ]
  )


def scores(
  correct: Bool[np.ndarray, "items samples"], ks: Sequence[int], prefix: str
) -> dict[str, float]:
  """Returns both versions of pass@k with standard errors over items.

  Args:
    correct: whether each of the n samples is correct.
    ks: the values of k; values above n are skipped.
    prefix: the prefix of the names `PREFIX/pass@K/unbiased` and
      `PREFIX/pass@K/first`, each also with `_stderr`.
  """
  metrics = {}
  for k in ks:
    if k > correct.shape[1]:
      continue
    for name, function in (("unbiased", unbiased), ("first", first_k)):
      values = function(correct, k)
      error = (
        values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0
      )
      metrics[f"{prefix}/pass@{k}/{name}"] = float(values.mean())
      metrics[f"{prefix}/pass@{k}/{name}_stderr"] = float(error)
  return metrics
