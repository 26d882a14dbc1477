"""Replays prompts that are solved some of the time, on top of any curriculum.

Paper: Countdown, section 3.1, equation 5. The paper gives neither the decay of
the mean pass rate nor the rule for sampling prompts. Here prompts are sampled
without replacement, in proportion to their priority.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from azr_jax.config.settings import Settings, setting
from azr_jax.curricula.curriculum import Curriculum, SampledItem


@dataclasses.dataclass(frozen=True)
class ReplaySettings(Settings):
  """Which prompts may be replayed, and how many.

  The paper has two variants and gives no decay.
  """

  fraction: float = setting(
    0.0,
    "fraction of each batch to replay",
    paper="0.25, or 0.10",
    minimum=0,
    maximum=1,
  )
  warmup_steps: int = setting(
    10, "number of initial steps without replay", paper="10, or 30", minimum=0
  )
  min_pass_rate: float = setting(
    0.05,
    "lowest mean pass rate of a replayed prompt",
    paper="0.05, or 0.20",
    minimum=0,
    maximum=1,
  )
  max_pass_rate: float = setting(
    0.95,
    "highest mean pass rate of a replayed prompt",
    paper="0.95, or 0.80",
    minimum=0,
    maximum=1,
  )
  max_replays: int = setting(
    0,
    "most replays per prompt; 0: no limit",
    paper="none, or 3",
    minimum=0,
  )
  decay: float = setting(
    0.8,
    "weight of the past in a prompt's mean pass rate",
    minimum=0,
    below=1,
    expert=True,
  )


@dataclasses.dataclass
class _Record:
  """The history of one prompt."""

  bucket: int
  mean_pass_rate: float
  replays: int = 0

  @property
  def priority(self) -> float:
    """Returns p (1 - p), which is highest at a pass rate of 1/2 (eq. 5)."""
    return self.mean_pass_rate * (1 - self.mean_pass_rate)


class Replay:
  """Replaces some of another curriculum's samples by replayed prompts."""

  def __init__(
    self,
    inner: Curriculum,
    *,
    fraction: float,
    warmup_steps: int,
    min_pass_rate: float,
    max_pass_rate: float,
    max_replays: int,
    decay: float,
  ):
    """Starts without a history; `ReplaySettings` explains the arguments."""
    self._inner = inner
    self._fraction = fraction
    self._warmup_steps = warmup_steps
    self._min_pass_rate = min_pass_rate
    self._max_pass_rate = max_pass_rate
    self._max_replays = max_replays
    self._decay = decay
    # Keyed by (source, index).
    self._records: dict[tuple[int, int], _Record] = {}
    self._last_fraction = 0.0

  def sample(
    self, step: int, count: int, rng: np.random.Generator
  ) -> list[SampledItem]:
    """Samples from the inner curriculum and replaces some items by replays.

    A replayed prompt replaces one from the same bucket.
    """
    items = self._inner.sample(step, count, rng)
    self._last_fraction = 0.0
    if step <= self._warmup_steps:
      return items
    quota = int(round(self._fraction * count))
    replaced = self._replace(items[:quota], rng)
    self._last_fraction = sum(item.replayed for item in replaced) / count
    return replaced + items[quota:]

  def _replace(
    self, items: Sequence[SampledItem], rng: np.random.Generator
  ) -> list[SampledItem]:
    """Replaces items by eligible prompts of their buckets, where possible."""
    replaced: list[SampledItem] = []
    for bucket in sorted({item.bucket for item in items}):
      fresh = [item for item in items if item.bucket == bucket]
      eligible = [
        key
        for key, record in self._records.items()
        if self._is_eligible(record, bucket)
      ]
      weights = np.array([self._records[key].priority for key in eligible])
      count = min(len(fresh), int(np.count_nonzero(weights)))
      if count:
        chosen = rng.choice(
          len(eligible), size=count, replace=False, p=weights / weights.sum()
        )
        for source, index in (eligible[i] for i in chosen.tolist()):
          replaced.append(SampledItem(index, bucket, source, replayed=True))
      replaced += fresh[count:]
    return replaced

  def _is_eligible(self, record: _Record, bucket: int) -> bool:
    return (
      record.bucket == bucket
      and self._min_pass_rate <= record.mean_pass_rate <= self._max_pass_rate
      and (self._max_replays == 0 or record.replays < self._max_replays)
    )

  def update(
    self,
    step: int,
    items: Sequence[SampledItem],
    pass_rates: Sequence[float],
    gains: Sequence[float],
  ) -> None:
    """Updates each prompt's moving average, which starts at its first rate."""
    self._inner.update(step, items, pass_rates, gains)
    decay = self._decay
    for item, rate in zip(items, pass_rates, strict=True):
      key = item.source, item.index
      record = self._records.get(key)
      if record is None:
        self._records[key] = _Record(item.bucket, float(rate))
      else:
        record.replays += item.replayed
        record.mean_pass_rate = decay * record.mean_pass_rate + (
          1 - decay
        ) * float(rate)

  def metrics(self) -> dict[str, float]:
    """Returns the inner metrics, and how much was and could be replayed."""
    eligible = sum(
      self._is_eligible(record, record.bucket)
      for record in self._records.values()
    )
    return self._inner.metrics() | {
      "replay_fraction": self._last_fraction,
      "replay_eligible": float(eligible),
    }

  def state_dict(self) -> dict[str, Any]:
    """Returns the inner state and every prompt's history."""
    records = [
      [*key, record.bucket, record.mean_pass_rate, record.replays]
      for key, record in self._records.items()
    ]
    return {"inner": self._inner.state_dict(), "seen": records}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores the inner state and the histories."""
    self._inner.load_state_dict(state["inner"])
    self._records = {
      (source, index): _Record(*values)
      for source, index, *values in state["seen"]
    }
