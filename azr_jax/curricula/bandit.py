"""Samples buckets from which the policy learns most: a bandit over categories.

A bucket's value is a moving average of the gain from its prompts, and buckets
are sampled by a softmax over values. The gain of a prompt is the mean absolute
advantage of its responses; it is large if some are right and some are wrong.

  Q(c) <- (1 - alpha) Q(c) + alpha r(c),   p(c) = exp(Q(c) / tau) / sum

Paper: Self-Evolving Curriculum, SEC (arXiv 2505.14970), section 3. A bucket
without a prompt in a step keeps its value. The published code instead gives it
a reward of 0, so that values decay faster the more buckets there are;
`forgets_unseen` does the same here.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from azr_jax.config.settings import Settings, setting
from azr_jax.curricula.curriculum import Buckets, SampledItem, means, softmax


@dataclasses.dataclass(frozen=True)
class BanditSettings(Settings):
  """The constants of SEC."""

  learning_rate: float = setting(
    0.5,
    "alpha, weight of a step in a bucket's value",
    paper="SEC: 0.5",
    above=0,
    maximum=1,
    expert=True,
  )
  temperature: float = setting(
    1.0,
    "tau, divisor of the values in the softmax over buckets",
    paper="SEC: 1.0 for Countdown, 0.4 for mathematics",
    above=0,
    expert=True,
  )
  forgets_unseen: bool = setting(
    False,
    "whether a bucket without a prompt in a step counts as gain 0",
    expert=True,
  )


class Bandit:
  """Samples a bucket for each prompt, then an item of that bucket."""

  def __init__(
    self,
    buckets: Buckets,
    *,
    learning_rate: float,
    temperature: float,
    forgets_unseen: bool,
  ):
    """Starts with values of 0; `BanditSettings` explains the arguments."""
    self._buckets = buckets
    self._learning_rate = learning_rate
    self._temperature = temperature
    self._forgets_unseen = forgets_unseen
    self._values = np.zeros(len(buckets.names))
    self._last_probabilities = np.zeros(len(buckets.names))

  def probabilities(self) -> Float[np.ndarray, " buckets"]:
    """Returns the probability of each bucket.

    Empty buckets have probability 0. All values start at 0, so at first the
    other buckets are equally likely.
    """
    scores = self._values / self._temperature
    return softmax(scores, self._buckets.filled())

  def sample(
    self, step: int, count: int, rng: np.random.Generator
  ) -> list[SampledItem]:
    """Samples `count` items, choosing buckets by value."""
    del step
    self._last_probabilities = self.probabilities()
    return self._buckets.sample_each(self._last_probabilities, count, rng)

  def update(
    self,
    step: int,
    items: Sequence[SampledItem],
    pass_rates: Sequence[float],
    gains: Sequence[float],
  ) -> None:
    """Moves the values of the sampled buckets towards their mean gain."""
    del step, pass_rates
    rate = self._learning_rate
    seen = means(items, gains)
    for bucket in range(len(self._values)):
      if bucket in seen or self._forgets_unseen:
        gain = seen.get(bucket, 0.0)
        self._values[bucket] += rate * (gain - self._values[bucket])

  def metrics(self) -> dict[str, float]:
    """Returns each bucket's last probability and value."""
    metrics = {}
    for index, name in enumerate(self._buckets.names):
      metrics[f"probability/{name}"] = float(self._last_probabilities[index])
      metrics[f"value/{name}"] = float(self._values[index])
    return metrics

  def state_dict(self) -> dict[str, Any]:
    """Returns the values as JSON values."""
    return {"values": self._values.tolist()}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores the values."""
    self._values = np.array(state["values"], float)
