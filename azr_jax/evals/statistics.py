"""Standard errors of scores, and paired differences between models.

A model has values [seeds, items]: for each seed that it was trained with and
each item, the fraction of correct responses, or pass@k. There are two sources
of error:

- over items: the benchmark is a sample of possible items;
- over seeds: training (or sampling) is random.

Two models are compared on the same items, so item difficulty cancels.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

# Maximum number of random indices in memory at a time.
_CHUNK = 1 << 22


@dataclasses.dataclass(frozen=True)
class ModelScore:
  """The score of a model.

  Attributes:
    mean: the mean over all seeds and items.
    item_stderr: the standard error over items, for fixed seeds.
    seed_stderr: the standard error over seeds, for fixed items. None if there
      is only one seed.
  """

  mean: float
  item_stderr: float
  seed_stderr: float | None


@dataclasses.dataclass(frozen=True)
class Difference:
  """The second model's score minus the first's, on the same items.

  Attributes:
    mean: the difference of the means.
    item_stderr: its standard error over paired items.
    seed_stderr: its standard error over the seeds of both models. None if both
      have only one seed.
    over_items: the bootstrap interval over items, for fixed seeds.
    over_both: the bootstrap interval over items and seeds. None if both models
      have only one seed.
    better: the number of items on which the second model is better.
    worse: the number of items on which the second model is worse.
  """

  mean: float
  item_stderr: float
  seed_stderr: float | None
  over_items: tuple[float, float]
  over_both: tuple[float, float] | None
  better: int
  worse: int


def standard_error(values: Float[np.ndarray, " values"]) -> float:
  """Returns the standard error of the mean; 0 for a single value."""
  count = len(values)
  return float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else 0.0


def estimate(values: Float[np.ndarray, "seeds items"]) -> ModelScore:
  """Returns the mean and its errors over items and over seeds."""
  seeds = values.mean(axis=1)
  return ModelScore(
    float(values.mean()),
    standard_error(values.mean(axis=0)),
    standard_error(seeds) if len(seeds) > 1 else None,
  )


def difference(
  first: Float[np.ndarray, "_seeds _items"],
  second: Float[np.ndarray, "_seeds _items"],
  resamples: int,
  confidence: float,
  rng: np.random.Generator,
) -> Difference:
  """Compares two models on the same items.

  Intervals come from the percentile bootstrap (Efron and Tibshirani 1993,
  chapter 13). It draws items with replacement, the same for both models. The
  interval over items and seeds also draws each model's seeds independently. A
  resample of s seeds has (s - 1) / s times the variance of an independent
  sample, so seed deviations are scaled by sqrt(s / (s - 1)).

  Args:
    first: values of the first model.
    second: values of the second model; its number of seeds may differ.
    resamples: number of bootstrap resamples.
    confidence: the confidence level of the intervals, between 0 and 1.
    rng: the generator of the resamples.

  Raises:
    ValueError: the models have different numbers of items, or none.
  """
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
  values: Float[np.ndarray, " items"], resamples: int, rng: np.random.Generator
) -> Float[np.ndarray, " resamples"]:
  """Returns the mean of each resample of the values."""
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
  values: Float[np.ndarray, "seeds items"],
  resamples: int,
  rng: np.random.Generator,
) -> Float[np.ndarray, " resamples"]:
  """Returns by how much each resample of the seeds shifts the mean."""
  seeds = values.mean(axis=1)
  count = len(seeds)
  if count == 1:
    return np.zeros(resamples)
  deviations = (seeds - seeds.mean()) * math.sqrt(count / (count - 1))
  return deviations[rng.integers(count, size=(resamples, count))].mean(axis=1)


def _interval(
  values: Float[np.ndarray, " resamples"], confidence: float
) -> tuple[float, float]:
  """Returns the central interval of resampled values."""
  tail = (1 - confidence) / 2
  low, high = np.quantile(values, (tail, 1 - tail))
  return float(low), float(high)
