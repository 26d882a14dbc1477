"""Tests of differences over seeds and items, for a claim made beforehand.

Seeds and items are both samples: others might have been drawn. Two models have
seeds of their own and are scored on the same items, so we take value y of
model g for seed i and item j to be

  y[g, i, j] = mean[g] + item[g, j] + seed[g, i] + rest[g, i, j]

Only `item` is shared between models. The variance of a difference of two means
over s[g] seeds and n items is

  sum of V_seed[g] / s[g] + V_item / n - sum of M_rest[g] / (s[g] n)

with the variances V_seed of a model's means over items, V_item of the items'
differences of means over seeds, and the residual mean square M_rest of a
model's two-way layout. Degrees of freedom are Satterthwaite's (Biometrics
Bulletin 1946; Cochran, Biometrics 1951). One model's mean is the same with one
term in each sum.

If a few seeds happen to agree, this test takes its degrees of freedom from the
many items. It then finds the small p-values that a correction for several tests
needs four times too often. So we also do Welch's t-test (Biometrika 1947) over
the seeds' means, and report the wider of the two intervals and the larger
p-value. With one item, both tests are Welch's. With one seed of a model, there
is only the test over items.

Axes: s, t seeds (index i), n items (index j).
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


def mean_of(values: Float[np.ndarray, "s n"]) -> Mean:
  """Returns the mean of s x n values with its errors."""
  return _mean([values], values.mean(axis=0))


def difference_of(
  base: Float[np.ndarray, "s n"], arm: Float[np.ndarray, "t n"]
) -> Mean:
  """Returns the mean of `arm` minus that of `base`, with its errors.

  Args:
    base: the values of a model by seed and item.
    arm: those of another model, of independent seeds, on the same items.
  """
  return _mean([base, arm], arm.mean(axis=0) - base.mean(axis=0))


def _mean(
  models: Sequence[Float[np.ndarray, "_seeds n"]],
  by_item: Float[np.ndarray, " n"],
) -> Mean:
  """Returns the mean over items, with its errors over items and seeds.

  Args:
    models: the values of each model by seed and item.
    by_item: mean over seeds by item, or its difference between two models.
  """
  mean, num_items = float(by_item.mean()), len(by_item)
  items = _Part(_variance(by_item) / num_items, num_items - 1)
  seeds = [
    _Part(_variance(values.mean(axis=1)) / len(values), len(values) - 1)
    for values in models
  ]
  if not all(part.df for part in seeds):
    return Mean(mean, (items.error(),) if items.df else ())
  over_seeds = _sum(seeds)
  if not items.df:
    return Mean(mean, (over_seeds.error(),))
  noises = [_noise(values) for values in models]
  both = _sum([*seeds, items], noises)
  # The estimated variance may be below one of its parts; the true one is not.
  largest = max(over_seeds, items, key=lambda part: part.variance)
  if both.variance <= largest.variance:
    both = largest
  return Mean(mean, (both.error(), over_seeds.error()))


@dataclasses.dataclass(frozen=True)
class _Part:
  """A part of a mean's variance, and its degrees of freedom."""

  variance: float
  df: float

  def error(self) -> Error:
    return Error(math.sqrt(self.variance), self.df)


def _sum(added: Sequence[_Part], subtracted: Sequence[_Part] = ()) -> _Part:
  """Returns a sum of parts with Satterthwaite's degrees of freedom."""
  variance = sum(part.variance for part in added)
  variance -= sum(part.variance for part in subtracted)
  parts = [*added, *subtracted]
  below = sum(part.variance**2 / part.df for part in parts)
  # Without any variance, no degree of freedom weighs more than another.
  df = variance**2 / below if below else sum(part.df for part in parts)
  return _Part(variance, df)


def _noise(values: Float[np.ndarray, "s n"]) -> _Part:
  """Returns the part of what neither seed nor item explains."""
  by_seed = values.mean(axis=1, keepdims=True)
  rest = values - by_seed - values.mean(axis=0) + values.mean()
  df = (values.shape[0] - 1) * (values.shape[1] - 1)
  return _Part(float((rest**2).sum()) / df / values.size, df)


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
