"""Chooses the rows of a step: by epochs, uniformly, or by a curriculum."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from azr_jax.curricula import passes
from azr_jax.curricula.curriculum import Curriculum, SampledItem
from azr_jax.systems import collect, dynamic_sampling
from azr_jax.systems.scores import ScoredItems


def row_of(item: int | Sequence[Any]) -> int:
  """Returns the row index of an item from `SamplingOrder.take`."""
  return item if isinstance(item, int) else SampledItem(*item).index


class SamplingOrder:
  """Chooses the rows of each step; stateful."""

  def __init__(
    self,
    total: int,
    prompts: int,
    max_prompts: int,
    seed: int,
    curriculum: Curriculum | None,
  ):
    """Starts at the first row of the first epoch.

    Args:
      total: the number of rows.
      prompts: the number of prompts per step.
      max_prompts: the maximum number of prompts to try per group.
      seed: the seed of the run.
      curriculum: chooses the rows; None takes them by epochs.
    """
    self._total, self._seed = total, seed
    self._prompts, self._max_prompts = prompts, max_prompts
    self._epochs = dynamic_sampling.EpochOrder(prompts, max_prompts)
    self._curriculum = curriculum

  def take(self, step: int) -> ScoredItems:
    """Takes the rows of a step, as indices or as fields of `SampledItem`."""
    if self._curriculum is None:
      positions = self._epochs.take(step - 1)
      indices = passes.epoch_indices(self._seed, self._total, positions)
      return ScoredItems(indices, positions)
    rngs = dynamic_sampling.generators(self._max_prompts, self._seed, step)
    # Draw the first round last: the curriculum's metrics describe its latest
    # draw.
    rounds = [
      self._curriculum.sample(step, self._prompts, rng)
      for rng in reversed(rngs)
    ]
    return ScoredItems(
      [
        dataclasses.astuple(item)
        for items in reversed(rounds)
        for item in items
      ]
    )

  def update(
    self, step: int, taken: ScoredItems, groups: dynamic_sampling.Groups
  ) -> None:
    """Updates the order with the groups of a step.

    The pass rate of a prompt is the mean of `correct`, or of the reward if none
    reports `correct`, clipped to [0, 1].
    """
    if self._curriculum is None:
      self._epochs.return_unused(taken.positions, groups)
      return
    sampled = [group.trajectories for group in groups.sampled]
    rates = [
      float(
        np.mean(
          [
            np.clip(t.metrics.get(collect.CORRECT, t.reward), 0, 1)
            for t in group
          ]
        )
      )
      for group in sampled
    ]
    items = [SampledItem(*taken.items[g.prompt_index]) for g in groups.sampled]
    self._curriculum.update(step, items, rates, collect.gains(sampled))

  def metrics(self) -> dict[str, float]:
    """Returns the curriculum's metrics."""
    if self._curriculum is None:
      return {}
    chosen = self._curriculum.metrics().items()
    return {f"curriculum/{name}": value for name, value in chosen}

  def state_dict(self) -> dict[str, Any]:
    """Returns the state of the epochs or the curriculum, as JSON values."""
    if self._curriculum is None:
      return self._epochs.state_dict()
    return self._curriculum.state_dict()

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    if self._curriculum is None:
      self._epochs.load_state_dict(state)
    else:
      self._curriculum.load_state_dict(state)
