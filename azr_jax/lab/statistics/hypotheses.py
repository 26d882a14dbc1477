"""Tests of differences over seeds and items, for a claim made beforehand.

Values d [s, n] are the differences of two models, paired by seed and by item.
Seeds and items are both samples: others might have been drawn. Under

  d[i, j] = mean + seed[i] + item[j] + rest[i, j]

the variance of the mean is (M_seed + M_item - M_rest) / (s n), with the mean
squares M of a two-way layout and Satterthwaite's degrees of freedom (Biometrics
Bulletin 1946; Cochran, Biometrics 1951). If a few seeds happen to agree, this
test takes its degrees of freedom from the many items. It then finds the small
p-values that a correction for several tests needs four times too often. So we
also do the paired t-test over the seeds' means, and report the wider of the two
intervals and the larger p-value. With one item, both tests are the t-test over
seeds. With one seed, there is only the test over items.

Axes: s seeds (index i), n items (index j).
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float

_QUANTILES = 4000


@dataclasses.dataclass(frozen=True)
class Error:
  """A standard error of a mean, and its degrees of freedom."""

  stderr: float
  df: float

  def width(self, confidence: float) -> float:
    """Returns half the width of Student's t interval."""
    return float(scipy.stats.t.ppf((1 + confidence) / 2, self.df)) * self.stderr

  def p_value(self, distance: float, one_sided: bool) -> float:
    """Returns the p-value of a mean at this distance from the tested one."""
    if not self.stderr:
      is_against = distance > 0 if one_sided else distance != 0
      return 0.0 if is_against else 1.0
    t = distance / self.stderr
    if one_sided:
      return float(scipy.stats.t.sf(t, self.df))
    return float(2 * scipy.stats.t.sf(abs(t), self.df))


@dataclasses.dataclass(frozen=True)
class Mean:
  """A mean with its standard errors.

  Attributes:
    value: the mean over seeds and items.
    errors: the error over seeds and items, and the error over seeds; () with
      one seed and one item.
  """

  value: float
  errors: tuple[Error, ...] = ()

  def error(self, confidence: float) -> Error | None:
    """Returns the error with the wider interval, or None without errors."""
    return max(self.errors, key=lambda e: e.width(confidence), default=None)

  def interval(self, confidence: float) -> tuple[float, float] | None:
    """Returns the wider confidence interval; None if no error is known."""
    error = self.error(confidence)
    if error is None:
      return None
    width = error.width(confidence)
    return self.value - width, self.value + width

  def p_value(self, null: float = 0.0, one_sided: bool = False) -> float:
    """Returns the p-value of a test against `null`, or 1 without an error.

    Args:
      null: the tested mean.
      one_sided: whether only means above `null` are evidence against it.
    """
    distance = self.value - null
    return max(
      (error.p_value(distance, one_sided) for error in self.errors), default=1.0
    )


def mean_of(values: Float[np.ndarray, "seeds items"]) -> Mean:
  """Returns the mean of s x n values with its errors."""
  num_seeds, num_items = values.shape
  mean = float(values.mean())
  by_seed, by_item = values.mean(axis=1), values.mean(axis=0)
  # Each is (mean square / (s n), degrees of freedom).
  seeds = _variance(by_seed) / num_seeds, num_seeds - 1
  items = _variance(by_item) / num_items, num_items - 1
  rest_df = seeds[1] * items[1]
  if not rest_df:
    variance, df = max(seeds, items, key=lambda part: part[1])
    return Mean(mean, (Error(math.sqrt(variance), df),) if df else ())
  over_seeds = Error(math.sqrt(seeds[0]), seeds[1])
  rest = values - by_seed[:, None] - by_item[None, :] + mean
  noise = float((rest**2).sum()) / rest_df / values.size
  variance = seeds[0] + items[0] - noise
  # The estimated variance may be below one of its parts; the true one is not.
  largest, largest_df = max(seeds, items)
  if variance <= largest:
    return Mean(mean, (Error(math.sqrt(largest), largest_df), over_seeds))
  df = variance**2 / (
    seeds[0] ** 2 / seeds[1] + items[0] ** 2 / items[1] + noise**2 / rest_df
  )
  return Mean(mean, (Error(math.sqrt(variance), df), over_seeds))


def _variance(values: Float[np.ndarray, " values"]) -> float:
  return float(np.var(values, ddof=1)) if len(values) > 1 else 0.0


def holm(p_values: Sequence[float]) -> list[float]:
  """Returns p-values adjusted for all tests (Holm, Scand. J. Statist. 1979).

  The probability that any true hypothesis gets one below alpha is at most
  alpha, whatever the dependence between the tests.
  """
  count = len(p_values)
  adjusted, largest = [0.0] * count, 0.0
  for rank, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
    largest = max(largest, (count - rank) * p_values[index])
    adjusted[index] = min(1.0, largest)
  return adjusted


def smallest_detectable(
  mean: Mean, alpha: float, power: float, one_sided: bool = False
) -> float | None:
  """Returns the true difference that a test detects with probability `power`.

  Args:
    mean: the mean whose errors the next experiment is assumed to have.
    alpha: error rate of the test.
    power: probability of detecting the difference.
    one_sided: whether the test is one-sided.

  Returns:
    The difference, from the noncentral t distribution; None without an error.
  """
  return max(
    (_detectable(one, alpha, power, one_sided) for one in mean.errors),
    default=None,
  )


def _detectable(
  error: Error, alpha: float, power: float, one_sided: bool
) -> float:
  tail = alpha if one_sided else alpha / 2
  limit = float(scipy.stats.t.isf(tail, error.df))
  # A noncentral t variate is a shifted normal one divided by a chi one, whose
  # quantiles these are. scipy's noncentral t is nan for large shifts.
  quantiles = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
  limits = limit * np.sqrt(scipy.stats.chi2.ppf(quantiles, error.df) / error.df)

  def missing(shift: float) -> float:
    seen = scipy.special.ndtr(shift - limits)
    if not one_sided:
      seen = seen + scipy.special.ndtr(-shift - limits)
    return float(seen.mean()) - power

  # The power is alpha at shift 0 and nearly 1 this far out.
  far = limit + 10 * math.sqrt(1 + limit**2 / error.df)
  shift: Any = scipy.optimize.brentq(missing, 0.0, far)
  return float(shift) * error.stderr
