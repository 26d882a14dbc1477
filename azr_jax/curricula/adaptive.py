"""One bucket a step, likelier the nearer its success is to a target.

Paper: seed 003, section 3.1, eq. 2-4.
"""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from azr_jax.curricula.curriculum import Draw, Pool


@dataclasses.dataclass(frozen=True)
class AdaptiveSettings:
  """The controller's constants.

  Attributes:
    target: s*, the success rate to be near; paper: 0.40.
    temperature: tau of the softmax; paper: 0.20.
    floor: epsilon, the share that is spread evenly; paper: 0.10.
    window: of how many of its steps a bucket's success is the mean; paper: 20.
    warm_up: steps that choose evenly; paper: 10.
  """

  target: float
  temperature: float
  floor: float
  window: int
  warm_up: int


class Adaptive:
  """The whole batch comes from one bucket."""

  def __init__(self, pool: Pool, settings: AdaptiveSettings):
    self._pool = pool
    self._settings = settings
    self._history: list[collections.deque[float]] = [
      collections.deque(maxlen=settings.window) for _ in pool.names
    ]
    self._last = np.zeros(len(pool.names))

  def probabilities(self, step: int) -> np.ndarray:
    """q_t, the probability of each bucket; empty ones have none.

    A bucket that was never chosen counts as if it were on target: the paper
    leaves this open.
    """
    settings = self._settings
    filled = np.array(
      [self._pool.count(b) > 0 for b in range(len(self._pool.names))]
    )
    even = filled / filled.sum()
    if step <= settings.warm_up:
      return even
    success = np.array(
      [np.mean(past) if past else settings.target for past in self._history]
    )
    usefulness = -np.abs(success - settings.target)
    weights = np.exp(usefulness / settings.temperature) * filled
    softmax = weights / weights.sum()
    return (1 - settings.floor) * softmax + settings.floor * even

  def choose(self, step: int, rng: np.random.Generator) -> int:
    """Draws the step's bucket."""
    self._last = self.probabilities(step)
    return int(rng.choice(len(self._last), p=self._last))

  def draw(self, step: int, count: int, rng: np.random.Generator) -> list[Draw]:
    """Draws `count` items of one bucket."""
    bucket = self.choose(step, rng)
    return [self._pool.draw(bucket, rng) for _ in range(count)]

  def observe(
    self, step: int, draws: Sequence[Draw], pass_rates: Sequence[float]
  ) -> None:
    """Adds each drawn bucket's rate of right answers to its window."""
    del step
    for bucket in {draw.bucket for draw in draws}:
      own = [
        rate
        for draw, rate in zip(draws, pass_rates, strict=True)
        if draw.bucket == bucket
      ]
      self._history[bucket].append(float(np.mean(own)))

  def metrics(self) -> dict[str, float]:
    """The last probabilities, and the success in each bucket's window."""
    found = {}
    for index, name in enumerate(self._pool.names):
      found[f"probability/{name}"] = float(self._last[index])
      if self._history[index]:
        found[f"success/{name}"] = float(np.mean(self._history[index]))
    return found

  def state_dict(self) -> dict[str, Any]:
    """The windows."""
    return {"history": [list(past) for past in self._history]}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores the windows."""
    for past, values in zip(self._history, state["history"], strict=True):
      past.clear()
      past.extend(values)
