"""Prompts that were solved in part come again, on top of any curriculum.

Paper: seed 003, section 3.1, eq. 5. It names neither the decay of the mean nor
how prompts are drawn; here: proportionally to priority, without replacement.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from azr_jax.curricula.curriculum import Curriculum, Draw


@dataclasses.dataclass(frozen=True)
class ReplaySettings:
  """The paper's two variants are 0.25, 10, 0.05, 0.95, 0 and 0.10, 30, 0.20,
  0.80, 3.

  Attributes:
    share: of a batch that may be replayed.
    warm_up: steps without replay.
    lowest: mean pass rate from which a prompt may come again.
    highest: mean pass rate up to which it may.
    most: times that a prompt may come again; 0: any number.
    decay: weight of a prompt's past in its moving mean pass rate.
  """

  share: float
  warm_up: int
  lowest: float
  highest: float
  most: int
  decay: float


@dataclasses.dataclass
class _Seen:
  bucket: int
  mean: float
  replays: int = 0

  @property
  def priority(self) -> float:
    """Highest where answers differ most (eq. 5)."""
    return self.mean * (1 - self.mean)


class Replay:
  """Replaces a part of what another curriculum draws, bucket by bucket."""

  def __init__(self, inner: Curriculum, settings: ReplaySettings):
    self._inner = inner
    self._settings = settings
    self._seen: dict[tuple[int, int], _Seen] = {}
    self._last = 0.0

  def draw(self, step: int, count: int, rng: np.random.Generator) -> list[Draw]:
    """The inner draws; some give way to prompts of their buckets."""
    draws = self._inner.draw(step, count, rng)
    self._last = 0.0
    if step <= self._settings.warm_up:
      return draws
    quota = int(round(self._settings.share * count))
    replaced = self._choose(draws[:quota], rng)
    self._last = sum(draw.replayed for draw in replaced) / count
    return replaced + draws[quota:]

  def _choose(
    self, draws: Sequence[Draw], rng: np.random.Generator
  ) -> list[Draw]:
    """Replayed prompts of the same buckets, as far as there are any."""
    chosen: list[Draw] = []
    for bucket in sorted({draw.bucket for draw in draws}):
      own = [draw for draw in draws if draw.bucket == bucket]
      eligible = [
        k for k, seen in self._seen.items() if self._may(seen, bucket)
      ]
      weights = np.array([self._seen[key].priority for key in eligible])
      count = min(len(own), int(np.count_nonzero(weights)))
      if count:
        again = rng.choice(
          len(eligible), size=count, replace=False, p=weights / weights.sum()
        )
        for source, index in (eligible[i] for i in again.tolist()):
          chosen.append(Draw(index, bucket, source, replayed=True))
      chosen += own[count:]
    return chosen

  def _may(self, seen: _Seen, bucket: int) -> bool:
    settings = self._settings
    return (
      seen.bucket == bucket
      and settings.lowest <= seen.mean <= settings.highest
      and (settings.most == 0 or seen.replays < settings.most)
    )

  def observe(
    self, step: int, draws: Sequence[Draw], pass_rates: Sequence[float]
  ) -> None:
    """Updates each prompt's moving mean; the first rate sets it."""
    self._inner.observe(step, draws, pass_rates)
    decay = self._settings.decay
    for draw, rate in zip(draws, pass_rates, strict=True):
      key = draw.source, draw.index
      seen = self._seen.get(key)
      if seen is None:
        self._seen[key] = _Seen(draw.bucket, float(rate))
      else:
        seen.replays += draw.replayed
        seen.mean = decay * seen.mean + (1 - decay) * float(rate)

  def metrics(self) -> dict[str, float]:
    """The inner ones, the share that was replayed, and what could be."""
    eligible = sum(self._may(seen, seen.bucket) for seen in self._seen.values())
    return self._inner.metrics() | {
      "replay_share": self._last,
      "replay_eligible": float(eligible),
    }

  def state_dict(self) -> dict[str, Any]:
    """The inner state and what was seen."""
    seen = [
      [*key, seen.bucket, seen.mean, seen.replays]
      for key, seen in self._seen.items()
    ]
    return {"inner": self._inner.state_dict(), "seen": seen}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores both."""
    self._inner.load_state_dict(state["inner"])
    self._seen = {
      (source, index): _Seen(*values)
      for source, index, *values in state["seen"]
    }
