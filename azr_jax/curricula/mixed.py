"""Mixes two curricula over separate sources, at a fixed batch fraction.

Paper: Countdown, section 3.2.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from azr_jax.curricula.curriculum import Curriculum, SampledItem


class Mixed:
  """Samples from two curricula; an item's source is 0 or 1."""

  def __init__(
    self, first: Curriculum, second: Curriculum, second_fraction: float
  ):
    """Mixes two curricula.

    Args:
      first: the curriculum of source 0.
      second: the curriculum of source 1.
      second_fraction: fraction of each batch sampled by `second`.
    """
    self._curricula = (first, second)
    self._second_fraction = second_fraction

  def sample(
    self, step: int, count: int, rng: np.random.Generator
  ) -> list[SampledItem]:
    """Samples from both curricula; items of source 0 come first."""
    second_count = int(round(self._second_fraction * count))
    counts = count - second_count, second_count
    return [
      dataclasses.replace(item, source=source)
      for source, (curriculum, source_count) in enumerate(
        zip(self._curricula, counts, strict=True)
      )
      if source_count
      for item in curriculum.sample(step, source_count, rng)
    ]

  def update(
    self,
    step: int,
    items: Sequence[SampledItem],
    pass_rates: Sequence[float],
    gains: Sequence[float],
  ) -> None:
    """Updates each curriculum with the results of its own items."""
    for source, curriculum in enumerate(self._curricula):
      indices = [i for i, item in enumerate(items) if item.source == source]
      if indices:
        curriculum.update(
          step,
          [items[i] for i in indices],
          [pass_rates[i] for i in indices],
          [gains[i] for i in indices],
        )

  def metrics(self) -> dict[str, float]:
    """Returns the metrics of both, prefixed by `source0/` and `source1/`."""
    return {
      f"source{source}/{name}": value
      for source, curriculum in enumerate(self._curricula)
      for name, value in curriculum.metrics().items()
    }

  def state_dict(self) -> dict[str, Any]:
    """Returns the states of both curricula."""
    return {"both": [curriculum.state_dict() for curriculum in self._curricula]}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores the states of both curricula."""
    for curriculum, inner in zip(self._curricula, state["both"], strict=True):
      curriculum.load_state_dict(inner)
