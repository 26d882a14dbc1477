"""Samples one bucket per step, preferably one near a target pass rate.

Paper: Countdown, section 3.1, equations 2-4.
"""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from azr_jax.config.settings import Settings, setting
from azr_jax.curricula.curriculum import Buckets, SampledItem, means, softmax


@dataclasses.dataclass(frozen=True)
class AdaptiveSettings(Settings):
  """The constants of equations 2-4."""

  target: float = setting(
    0.40,
    "s*, the pass rate at which a bucket scores highest",
    paper="0.40",
    minimum=0,
    maximum=1,
  )
  temperature: float = setting(
    0.20,
    "tau, divisor of the scores in the softmax over buckets",
    paper="0.20",
    above=0,
    expert=True,
  )
  epsilon: float = setting(
    0.10,
    "probability spread evenly over the buckets",
    paper="0.10",
    minimum=0,
    maximum=1,
    expert=True,
  )
  window: int = setting(
    20,
    "batches over which a bucket's pass rate is averaged",
    paper="20",
    minimum=1,
    expert=True,
  )
  warmup_steps: int = setting(
    10,
    "number of initial steps that sample buckets uniformly",
    paper="10",
    minimum=0,
    expert=True,
  )


class Adaptive:
  """Samples each step's whole batch from one bucket."""

  def __init__(
    self,
    buckets: Buckets,
    *,
    target: float,
    temperature: float,
    epsilon: float,
    window: int,
    warmup_steps: int,
  ):
    """Starts with empty windows; `AdaptiveSettings` explains the arguments."""
    self._buckets = buckets
    self._target = target
    self._temperature = temperature
    self._epsilon = epsilon
    self._warmup_steps = warmup_steps
    self._history: list[collections.deque[float]] = [
      collections.deque(maxlen=window) for _ in buckets.names
    ]
    self._last_probabilities = np.zeros(len(buckets.names))

  def probabilities(self, step: int) -> Float[np.ndarray, " buckets"]:
    """Returns q_t, the probability of each bucket.

    Empty buckets have probability 0. The paper leaves the pass rate of an
    unsampled bucket undefined; here it counts as on target.
    """
    filled = self._buckets.filled()
    uniform = filled / filled.sum()
    if step <= self._warmup_steps:
      return uniform
    success = np.array(
      [np.mean(past) if past else self._target for past in self._history]
    )
    scores = -np.abs(success - self._target) / self._temperature
    near_target = softmax(scores, filled)
    return (1 - self._epsilon) * near_target + self._epsilon * uniform

  def sample_bucket(self, step: int, rng: np.random.Generator) -> int:
    """Samples a step's bucket and returns its index."""
    self._last_probabilities = self.probabilities(step)
    return int(
      rng.choice(len(self._last_probabilities), p=self._last_probabilities)
    )

  def sample(
    self, step: int, count: int, rng: np.random.Generator
  ) -> list[SampledItem]:
    """Samples `count` items from one bucket."""
    bucket = self.sample_bucket(step, rng)
    return [self._buckets.sample(bucket, rng) for _ in range(count)]

  def update(
    self,
    step: int,
    items: Sequence[SampledItem],
    pass_rates: Sequence[float],
    gains: Sequence[float],
  ) -> None:
    """Adds the mean pass rate of each sampled bucket to its window."""
    del step, gains
    for bucket, pass_rate in means(items, pass_rates).items():
      self._history[bucket].append(pass_rate)

  def metrics(self) -> dict[str, float]:
    """Returns each bucket's last probability and mean windowed pass rate."""
    metrics = {}
    for index, name in enumerate(self._buckets.names):
      metrics[f"probability/{name}"] = float(self._last_probabilities[index])
      if self._history[index]:
        metrics[f"success/{name}"] = float(np.mean(self._history[index]))
    return metrics

  def state_dict(self) -> dict[str, Any]:
    """Returns the windows of pass rates as JSON values."""
    return {"history": [list(past) for past in self._history]}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores the windows of pass rates."""
    for past, values in zip(self._history, state["history"], strict=True):
      past.clear()
      past.extend(values)
