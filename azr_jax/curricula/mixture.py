"""Buckets drawn prompt by prompt: uniform, fixed shares, or a schedule.

Paper: seed 003, section 3.1, table 1.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from azr_jax.curricula.curriculum import Draw, Pool

# Step (from 1) to a probability per bucket.
Shares = Callable[[int], np.ndarray]


class Mixture:
  """Draws a bucket for each prompt, then an item of it."""

  def __init__(self, pool: Pool, shares: Shares):
    """`shares` need not regard empty buckets: theirs go to the others."""
    self._pool = pool
    self._shares = shares
    self._last = np.zeros(len(pool.names))

  def draw(self, step: int, count: int, rng: np.random.Generator) -> list[Draw]:
    """Draws `count` items by the step's shares."""
    filled = [self._pool.count(b) > 0 for b in range(len(self._pool.names))]
    shares = self._shares(step) * filled
    self._last = shares / shares.sum()
    buckets = rng.choice(len(shares), size=count, p=self._last)
    return [self._pool.draw(int(bucket), rng) for bucket in buckets]

  def observe(
    self, step: int, draws: Sequence[Draw], pass_rates: Sequence[float]
  ) -> None:
    """Nothing: these shares do not depend on how it goes."""

  def metrics(self) -> dict[str, float]:
    """The last step's probability of each bucket."""
    return {
      f"probability/{name}": float(share)
      for name, share in zip(self._pool.names, self._last, strict=True)
    }

  def state_dict(self) -> dict[str, Any]:
    """Nothing: shares follow from the step."""
    return {}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Nothing."""


def proportional(pool: Pool) -> Shares:
  """Shares by which every item is as likely as any other."""

  def shares(step: int) -> np.ndarray:
    del step
    return np.array([pool.count(b) for b in range(len(pool.names))], float)

  return shares


def constant(probabilities: Sequence[float]) -> Shares:
  """The same shares at each step."""
  return lambda step: np.asarray(probabilities, float)


# Progress at the joints, and the shares of easy, medium and hard there.
STATIC_SCHEDULE = (
  (0.00, (0.70, 0.25, 0.05)),
  (0.40, (0.35, 0.60, 0.05)),
  (0.75, (0.10, 0.60, 0.30)),
  (1.00, (0.05, 0.40, 0.55)),
)


def static(total_steps: int) -> Shares:
  """From easy to hard along table 1, linear between its joints.

  Args:
    total_steps: T; progress is (step - 1) / (T - 1), 0 if T is 1.
  """
  joints, shares = zip(*STATIC_SCHEDULE, strict=True)
  columns = np.array(shares).T

  def at(step: int) -> np.ndarray:
    progress = (step - 1) / max(total_steps - 1, 1)
    return np.array([np.interp(progress, joints, c) for c in columns])

  return at
