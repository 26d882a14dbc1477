"""What a curriculum is: it draws the prompts of a step and hears how they went.

Curricula know nothing of what a prompt is. They see a pool of items, each in a
bucket, and pass rates; so every system can use them.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np


@dataclasses.dataclass(frozen=True)
class Draw:
  """An item that is to be a prompt of a step.

  Attributes:
    index: the item's, in its pool.
    bucket: the item's, as an index into the pool's names.
    source: which pool, where several are mixed.
    replayed: whether it was chosen for how it went before.
  """

  index: int
  bucket: int
  source: int = 0
  replayed: bool = False


class Pool:
  """Which items are in which bucket. Items may be added."""

  def __init__(self, names: Sequence[str], bucket_of: Sequence[int]):
    """Makes a pool.

    Args:
      names: of the buckets.
      bucket_of: each item's bucket, as an index into `names`.
    """
    self.names = tuple(names)
    self._members: list[list[int]] = [[] for _ in names]
    for index, bucket in enumerate(bucket_of):
      self._members[bucket].append(index)
    self.size = len(bucket_of)

  def add(self, bucket: int) -> int:
    """Adds an item to a bucket; returns its index."""
    self._members[bucket].append(self.size)
    self.size += 1
    return self.size - 1

  def count(self, bucket: int) -> int:
    """How many items a bucket holds."""
    return len(self._members[bucket])

  def draw(self, bucket: int, rng: np.random.Generator) -> Draw:
    """An item of a bucket, uniformly."""
    members = self._members[bucket]
    return Draw(members[rng.integers(len(members))], bucket)


class Curriculum(Protocol):
  """A rule for which prompts a step trains on."""

  def draw(self, step: int, count: int, rng: np.random.Generator) -> list[Draw]:
    """Draws the prompts of a step (from 1); all randomness is `rng`'s."""
    ...

  def observe(
    self, step: int, draws: Sequence[Draw], pass_rates: Sequence[float]
  ) -> None:
    """Hears the share of right answers that each draw got."""
    ...

  def metrics(self) -> dict[str, float]:
    """What is worth plotting of the last step, without a prefix."""
    ...

  def state_dict(self) -> dict[str, Any]:
    """Everything that changes from step to step, as JSON values."""
    ...

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    ...
