"""Samples a bucket per prompt, with uniform, constant or scheduled weights.

Paper: Countdown, section 3.1, table 1.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from azr_jax.curricula.curriculum import Buckets, SampledItem

# Maps a step (from 1) to a weight per bucket.
BucketWeights = Callable[[int], Float[np.ndarray, " buckets"]]


class Mixture:
  """Samples a bucket for each prompt, then an item of that bucket."""

  def __init__(self, buckets: Buckets, weights: BucketWeights):
    """Creates the curriculum.

    Args:
      buckets: the buckets of items.
      weights: bucket weights at each step. Empty buckets are never sampled; the
        others keep their proportions.
    """
    self._buckets = buckets
    self._weights = weights
    self._last_probabilities = np.zeros(len(buckets.names))

  def sample(
    self, step: int, count: int, rng: np.random.Generator
  ) -> list[SampledItem]:
    """Samples `count` items with the step's weights."""
    weights = self._weights(step) * self._buckets.filled()
    self._last_probabilities = weights / weights.sum()
    return self._buckets.sample_each(self._last_probabilities, count, rng)

  def update(
    self,
    step: int,
    items: Sequence[SampledItem],
    pass_rates: Sequence[float],
    gains: Sequence[float],
  ) -> None:
    """Does nothing, because weights do not depend on pass rates."""

  def metrics(self) -> dict[str, float]:
    """Returns the last step's probability of each bucket."""
    return {
      f"probability/{name}": float(probability)
      for name, probability in zip(
        self._buckets.names, self._last_probabilities, strict=True
      )
    }

  def state_dict(self) -> dict[str, Any]:
    """Returns an empty state, because weights depend only on the step."""
    return {}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Does nothing, because the state is empty."""


def proportional(buckets: Buckets) -> BucketWeights:
  """Returns weights that make every item equally likely."""

  def weights(step: int) -> np.ndarray:
    del step
    counts = [buckets.count(b) for b in range(len(buckets.names))]
    return np.array(counts, float)

  return weights


def constant(weights: Sequence[float]) -> BucketWeights:
  """Returns the same weights for every step."""
  return lambda step: np.asarray(weights, float)


# Table 1: (progress, probabilities of easy, medium and hard).
STATIC_SCHEDULE = (
  (0.00, (0.70, 0.25, 0.05)),
  (0.40, (0.35, 0.60, 0.05)),
  (0.75, (0.10, 0.60, 0.30)),
  (1.00, (0.05, 0.40, 0.55)),
)


def static(total_steps: int) -> BucketWeights:
  """Returns the schedule of table 1, from easy to hard.

  Weights are interpolated linearly between the rows of the table.

  Args:
    total_steps: T; progress is (step - 1) / (T - 1), or 0 if T is 1.
  """
  knots, rows = zip(*STATIC_SCHEDULE, strict=True)
  columns = np.array(rows).T

  def weights(step: int) -> np.ndarray:
    progress = (step - 1) / max(total_steps - 1, 1)
    return np.array([np.interp(progress, knots, c) for c in columns])

  return weights
