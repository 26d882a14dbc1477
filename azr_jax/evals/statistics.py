"""Errors of scores over items and seeds, and paired differences of models.

A model that was trained with S seeds and scored on N items has values [S, N]:
for each seed and item, the fraction of right responses, or pass@k. Two sources
of error are told apart:

- over items: other items of the same kind might have been asked;
- over seeds: the training (or sampling) might have had other random numbers.

Two models are compared on the same items, so that what makes an item hard for
both of them cancels. Axis letters: S seeds, N items, R resamples.
"""

import dataclasses
import math

import numpy as np

# Numbers that are drawn at a time.
_CHUNK = 1 << 22


@dataclasses.dataclass(frozen=True)
class Estimate:
  """The score of a model.

  Attributes:
    mean: over all seeds and items.
    item_stderr: standard error over items, for the seeds that there are.
    seed_stderr: standard error over seeds, for these items; None: one seed.
  """

  mean: float
  item_stderr: float
  seed_stderr: float | None


@dataclasses.dataclass(frozen=True)
class Difference:
  """The score of a second model less that of a first one, on the same items.

  Attributes:
    mean: the difference of the means.
    item_stderr: its standard error over items, which are paired.
    seed_stderr: its standard error over the seeds of both; None: both have one.
    over_items: bootstrap interval over items, for the seeds that there are.
    over_both: bootstrap interval over items and seeds; None: both have one.
    better: number of items on which the second model is better.
    worse: number of items on which it is worse.
  """

  mean: float
  item_stderr: float
  seed_stderr: float | None
  over_items: tuple[float, float]
  over_both: tuple[float, float] | None
  better: int
  worse: int


def standard_error(values: np.ndarray) -> float:
  """Returns the standard error of the mean of values [N]; 0 for one value."""
  count = len(values)
  return float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else 0.0


def estimate(values: np.ndarray) -> Estimate:
  """Returns mean and errors of values [S, N]."""
  seeds = values.mean(axis=1)
  return Estimate(
    float(values.mean()),
    standard_error(values.mean(axis=0)),
    standard_error(seeds) if len(seeds) > 1 else None,
  )


def difference(
  first: np.ndarray,
  second: np.ndarray,
  resamples: int,
  confidence: float,
  rng: np.random.Generator,
  paired_seeds: bool = False,
) -> Difference:
  """Compares two models on the same items.

  The bootstrap is of percentiles (Efron and Tibshirani 1993, chapter 13). It
  draws items with replacement, the same for both models, and, for the interval
  over both, seeds of each model by itself. A resample of S seeds has the
  variance (S - 1) / S of an independent sample, so deviations of seeds are
  multiplied by the root of S / (S - 1).

  Args:
    first: [S, N], of the model to compare with.
    second: the same of the other model, whose S may differ.
    resamples: R, the number of bootstrap resamples.
    confidence: of the intervals, between 0 and 1.
    rng: draws the resamples.
    paired_seeds: whether seed s of both models is drawn together, because
      both had the same random numbers; then S is the same.

  Raises:
    ValueError: the models have other numbers of items, or none.
  """
  if paired_seeds:
    first, second = np.zeros((1, first.shape[1])), second - first
  if first.shape[1] != second.shape[1] or not first.shape[1]:
    raise ValueError(
      f"{first.shape[1]} and {second.shape[1]} items: expected the same ones"
    )
  per_item = second.mean(axis=0) - first.mean(axis=0)
  resampled = _resampled_means(per_item, resamples, rng)
  seed_errors = [
    standard_error(values.mean(axis=1)) if len(values) > 1 else 0.0
    for values in (first, second)
  ]
  has_seeds = len(first) > 1 or len(second) > 1
  over_both = None
  if has_seeds:
    effects = _seed_effects(second, resamples, rng) - _seed_effects(
      first, resamples, rng
    )
    over_both = _interval(resampled + effects, confidence)
  return Difference(
    mean=float(per_item.mean()),
    item_stderr=standard_error(per_item),
    seed_stderr=math.hypot(*seed_errors) if has_seeds else None,
    over_items=_interval(resampled, confidence),
    over_both=over_both,
    better=int((per_item > 0).sum()),
    worse=int((per_item < 0).sum()),
  )


def _resampled_means(
  values: np.ndarray, resamples: int, rng: np.random.Generator
) -> np.ndarray:
  """Returns the means [R] of resamples of values [N]."""
  count = len(values)
  rows = max(1, _CHUNK // count)
  means = [
    values[
      rng.integers(count, size=(min(rows, resamples - start), count))
    ].mean(axis=1)
    for start in range(0, resamples, rows)
  ]
  return np.concatenate(means)


def _seed_effects(
  values: np.ndarray, resamples: int, rng: np.random.Generator
) -> np.ndarray:
  """Returns how resampled seeds move the mean [R]; 0 for one seed."""
  seeds = values.mean(axis=1)
  count = len(seeds)
  if count == 1:
    return np.zeros(resamples)
  deviations = (seeds - seeds.mean()) * math.sqrt(count / (count - 1))
  return deviations[rng.integers(count, size=(resamples, count))].mean(axis=1)


def _interval(values: np.ndarray, confidence: float) -> tuple[float, float]:
  """Returns the central interval of resampled values [R]."""
  tail = (1 - confidence) / 2
  low, high = np.quantile(values, (tail, 1 - tail))
  return float(low), float(high)
