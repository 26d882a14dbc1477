"""Chooses the rows of a step: by epochs, uniformly, or by a curriculum."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from azr_jax.config import named
from azr_jax.curricula import (
  adaptive,
  bandit,
  curriculum,
  mixture,
  passes,
  replay,
)
from azr_jax.curricula.curriculum import Buckets, Curriculum, SampledItem
from azr_jax.systems import collect, dynamic_sampling
from azr_jax.systems.custom.settings import (
  ADAPTIVE,
  BANDIT,
  EPOCHS,
  CustomSettings,
)
from azr_jax.systems.scores import ScoredItems
from azr_jax.systems.system import Context
from azr_jax.tasks.table.reading import Row


def row_of(item: int | Sequence[Any]) -> int:
  """Returns the row index of an item from `SamplingOrder.take`."""
  return item if isinstance(item, int) else SampledItem(*item).index


class SamplingOrder:
  """Chooses the rows of each step; stateful."""

  def __init__(
    self, settings: CustomSettings, context: Context, rows: Sequence[Row]
  ):
    """Sorts the rows into buckets if a curriculum chooses them.

    Raises:
      ValueError: the rows lack `custom.bucket_column`.
    """
    self._settings, self._seed, self._total = settings, context.seed, len(rows)
    self._epochs = dynamic_sampling.EpochOrder(
      settings.prompts, settings.dynamic_sampling.max_prompts
    )
    self._curriculum: Curriculum | None = None
    if settings.curriculum != EPOCHS:
      self._curriculum = _curriculum(settings, _buckets(settings, rows))

  def take(self, step: int) -> ScoredItems:
    """Takes the rows of a step, as indices or as fields of `SampledItem`."""
    settings = self._settings
    if self._curriculum is None:
      positions = self._epochs.take(step - 1)
      indices = passes.epoch_indices(self._seed, self._total, positions)
      return ScoredItems(indices, positions)
    rngs = dynamic_sampling.generators(
      settings.dynamic_sampling.max_prompts, self._seed, step
    )
    # Draw the first round last: the curriculum's metrics describe its latest
    # draw.
    rounds = [
      self._curriculum.sample(step, settings.prompts, rng)
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


def _buckets(settings: CustomSettings, rows: Sequence[Row]) -> Buckets:
  """Returns buckets of rows, by source or by the value of a column."""
  column = settings.bucket_column
  if not column:
    numbers = [row.source for row in rows]
    names = [f"source{number}" for number in range(max(numbers) + 1)]
    return Buckets(names, numbers)
  lacking = [i for i, row in enumerate(rows) if column not in row.columns]
  if lacking:
    raise ValueError(
      f"config.custom.bucket_column={column!r}: row {lacking[0] + 1} lacks it: "
      f"expected one of {list(rows[lacking[0]].columns)}"
    )
  values = [str(row.columns[column]) for row in rows]
  names = sorted({*values})
  return Buckets(names, [names.index(value) for value in values])


def _curriculum(settings: CustomSettings, buckets: Buckets) -> Curriculum:
  chosen: Curriculum
  if settings.curriculum == ADAPTIVE:
    chosen = adaptive.Adaptive(buckets, **vars(settings.adaptive))
  elif settings.curriculum == BANDIT:
    chosen = bandit.Bandit(buckets, **vars(settings.bandit))
  elif named.is_spec(settings.curriculum):
    chosen = curriculum.make(settings.curriculum, buckets)
  else:
    chosen = mixture.Mixture(buckets, mixture.proportional(buckets))
  if settings.replay.fraction:
    chosen = replay.Replay(chosen, **vars(settings.replay))
  return chosen
