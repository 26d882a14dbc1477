"""The curriculum interface, and the buckets of items that curricula sample.

A curriculum samples the prompts of a step and is updated with their pass rates.
It sees only items in buckets, never prompts, so every system can use it.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from azr_jax.config import named


@dataclasses.dataclass(frozen=True)
class SampledItem:
  """An item chosen as a prompt of a step.

  Attributes:
    index: the item's index in its source.
    bucket: index of its bucket in `Buckets.names`.
    source: index of the source, if several are mixed.
    replayed: whether it was chosen for its earlier pass rates.
  """

  index: int
  bucket: int
  source: int = 0
  replayed: bool = False


class Buckets:
  """The items of a source, sorted into buckets; items can be added.

  Attributes:
    names: names of the buckets.
    size: number of items in all buckets.
  """

  def __init__(self, names: Sequence[str], bucket_of: Sequence[int]):
    """Sorts the items into buckets.

    Args:
      names: names of the buckets.
      bucket_of: the bucket of each item, as an index into `names`.
    """
    self.names = tuple(names)
    self._members: list[list[int]] = [[] for _ in names]
    for index, bucket in enumerate(bucket_of):
      self._members[bucket].append(index)
    self.size = len(bucket_of)

  def add(self, bucket: int) -> int:
    """Adds an item to a bucket and returns its index."""
    self._members[bucket].append(self.size)
    self.size += 1
    return self.size - 1

  def truncate(self, size: int) -> None:
    """Removes the items that were added last, so that `size` remain."""
    for members in self._members:
      while members and members[-1] >= size:
        members.pop()
    self.size = min(self.size, size)

  def count(self, bucket: int) -> int:
    """Returns the number of items in a bucket."""
    return len(self._members[bucket])

  def filled(self) -> Bool[np.ndarray, " buckets"]:
    """Returns whether each bucket has an item."""
    return np.array([bool(members) for members in self._members])

  def sample(self, bucket: int, rng: np.random.Generator) -> SampledItem:
    """Samples an item of a bucket, uniformly."""
    members = self._members[bucket]
    return SampledItem(members[rng.integers(len(members))], bucket)

  def sample_each(
    self,
    probabilities: Float[np.ndarray, " buckets"],
    count: int,
    rng: np.random.Generator,
  ) -> list[SampledItem]:
    """Samples a bucket for each of `count` items, then the items.

    Args:
      probabilities: probability of each bucket; 0 if it is empty.
      count: number of items.
      rng: draws all buckets first, then an item of each.
    """
    chosen = rng.choice(len(probabilities), size=count, p=probabilities)
    return [self.sample(int(bucket), rng) for bucket in chosen]


def softmax(
  scores: Float[np.ndarray, " buckets"], filled: Bool[np.ndarray, " buckets"]
) -> Float[np.ndarray, " buckets"]:
  """Returns the softmax of scores over the filled buckets.

  Args:
    scores: score of each bucket.
    filled: whether each bucket has an item; empty ones get probability 0.
  """
  # Subtracting the maximum keeps the weights from all underflowing to 0.
  weights = np.exp(np.where(filled, scores - scores[filled].max(), -np.inf))
  return weights / weights.sum()


def means(
  items: Sequence[SampledItem], values: Sequence[float]
) -> dict[int, float]:
  """Returns {bucket: mean value of its items}, for buckets with items."""
  by_bucket: dict[int, list[float]] = {}
  for item, value in zip(items, values, strict=True):
    by_bucket.setdefault(item.bucket, []).append(value)
  return {bucket: float(np.mean(own)) for bucket, own in by_bucket.items()}


@runtime_checkable
class Curriculum(Protocol):
  """A rule that chooses the prompts of each step."""

  def sample(
    self, step: int, count: int, rng: np.random.Generator
  ) -> list[SampledItem]:
    """Samples `count` prompts of a step.

    Args:
      step: the training step, from 1.
      count: number of prompts.
      rng: the only source of randomness.
    """
    ...

  def update(
    self,
    step: int,
    items: Sequence[SampledItem],
    pass_rates: Sequence[float],
    gains: Sequence[float],
  ) -> None:
    """Updates the curriculum with the results of the sampled items.

    Args:
      step: the training step.
      items: the sampled items.
      pass_rates: fraction of correct responses for each item.
      gains: mean absolute advantage of the responses for each item.
    """
    ...

  def metrics(self) -> dict[str, float]:
    """Returns the metrics of the last step, without a prefix in their names."""
    ...

  def state_dict(self) -> dict[str, Any]:
    """Returns all state that changes between steps, as JSON values."""
    ...

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    ...


def load(name: str) -> Callable[[Buckets], Curriculum]:
  """Returns the callable MODULE:NAME that builds a curriculum from buckets.

  Raises:
    ValueError: there is no such class or function; the message continues
      "expected".
  """
  return named.choose(name, {}, callable, "a curriculum")


def make(name: str, buckets: Buckets) -> Curriculum:
  """Builds the curriculum MODULE:NAME over buckets.

  Raises:
    ValueError: there is no such class or function, or its result is not a
      curriculum.
  """
  made = load(name)(buckets)
  if not isinstance(made, Curriculum):
    methods = [key for key in vars(Curriculum) if not key.startswith("_")]
    raise ValueError(
      f"curriculum {name!r}: expected an object with the methods "
      f"{', '.join(methods)}, not {type(made).__name__}"
    )
  return made
