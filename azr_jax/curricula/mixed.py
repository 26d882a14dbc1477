"""Two curricula, each over a pool of its own, in fixed shares of a batch.

Paper: seed 003, section 3.2.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from azr_jax.curricula.curriculum import Curriculum, Draw


class Mixed:
  """Draws have the source 0 or 1."""

  def __init__(self, first: Curriculum, second: Curriculum, share: float):
    """`share` of each batch is drawn by the second."""
    self._both = (first, second)
    self._share = share

  def draw(self, step: int, count: int, rng: np.random.Generator) -> list[Draw]:
    """Draws from both."""
    second = int(round(self._share * count))
    counts = count - second, second
    return [
      dataclasses.replace(draw, source=source)
      for source, (curriculum, own) in enumerate(
        zip(self._both, counts, strict=True)
      )
      if own
      for draw in curriculum.draw(step, own, rng)
    ]

  def observe(
    self, step: int, draws: Sequence[Draw], pass_rates: Sequence[float]
  ) -> None:
    """Tells each how its own went."""
    for source, curriculum in enumerate(self._both):
      own = [i for i, draw in enumerate(draws) if draw.source == source]
      if own:
        curriculum.observe(
          step, [draws[i] for i in own], [pass_rates[i] for i in own]
        )

  def metrics(self) -> dict[str, float]:
    """Those of both, by source."""
    return {
      f"source{source}/{name}": value
      for source, curriculum in enumerate(self._both)
      for name, value in curriculum.metrics().items()
    }

  def state_dict(self) -> dict[str, Any]:
    """Both states."""
    return {"both": [curriculum.state_dict() for curriculum in self._both]}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores both."""
    for curriculum, own in zip(self._both, state["both"], strict=True):
      curriculum.load_state_dict(own)
