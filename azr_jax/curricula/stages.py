"""Trains in stages on the items with the highest improvement potential.

An item is anything with a pass rate: a question, a program, a puzzle. Its id
identifies it in checkpoints.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from azr_jax.curricula import improvement_potential, passes
from azr_jax.curricula.improvement_potential import PassRate


class CurriculumStages:
  """Splits items into groups, and remembers the stage of the split."""

  def __init__(
    self,
    ids: Sequence[str],
    pass_rates: Sequence[PassRate] | None,
    *,
    curriculum: str,
    grouping: str,
    stage_steps: int,
    seed: int,
  ):
    """Groups the items.

    Args:
      ids: unique ids of the items.
      pass_rates: the pass rate of each item. None if not estimated yet; all
        items then form one group.
      curriculum: one of `improvement_potential.CURRICULA`.
      grouping: one of `improvement_potential.GROUPINGS`.
      stage_steps: number of steps per stage.
      seed: seed of all random draws.
    """
    self._ids = list(ids)
    self._curriculum = curriculum
    self._grouping = grouping
    self._stage_steps = stage_steps
    self._seed = seed
    self._groups = [1] * len(self._ids)
    self._grouped_for = 0  # The stage the groups were made for; 0 for none.
    if pass_rates is not None:
      self.regroup(pass_rates, 1)

  def stage(self, step: int) -> int:
    """Returns the stage of a step, both from 1."""
    return improvement_potential.stage_of(step, self._stage_steps)

  def needs_pass_rates(self, step: int) -> bool:
    """Returns whether new pass rates of all items are needed before a step."""
    return (
      self._curriculum in improvement_potential.ONLINE
      and self._grouped_for < self.stage(step)
    )

  def regroup(self, pass_rates: Sequence[PassRate], step: int) -> None:
    """Groups the items by pass rates estimated before a step."""
    self._groups = improvement_potential.make_groups(
      pass_rates, self._curriculum, self._grouping, self._seed
    )
    self._grouped_for = self.stage(step)

  def steps_before(self, step: int) -> int:
    """Returns the number of earlier steps in the step's stage."""
    return step - 1 - (self.stage(step) - 1) * self._stage_steps

  def items_at(
    self, step: int, positions: Iterable[int], min_count: int
  ) -> list[int]:
    """Returns indices of items from shuffled epochs over a step's stage.

    Args:
      step: the training step.
      positions: positions in these epochs, from 0.
      min_count: the fewest items a stage may have, if that many exist.
    """
    stage = self.stage(step)
    items = improvement_potential.stage_questions(
      self._groups, self._curriculum, stage, min_count
    )
    indices = passes.epoch_indices(self._seed, len(items), positions, stage)
    return [items[index] for index in indices]

  def metrics(self, step: int, name: str) -> dict[str, float]:
    """Returns the stage and the group sizes, as metrics of system `name`."""
    sizes = np.bincount(
      self._groups, minlength=improvement_potential.STAGES + 1
    )
    return {f"stage/{name}/number": float(self.stage(step))} | {
      f"stage/{name}/group{group}": float(sizes[group])
      for group in range(1, improvement_potential.STAGES + 1)
    }

  def state_dict(self) -> dict[str, Any]:
    """Returns each id's group and the stage the groups were made for."""
    return {
      "groups": dict(zip(self._ids, self._groups, strict=True)),
      "measured_for": self._grouped_for,
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned.

    Raises:
      ValueError: the state lacks some of the items.
    """
    missing = [name for name in self._ids if name not in state["groups"]]
    if missing:
      raise ValueError(
        f"the checkpoint lacks {missing[0]!r} and {len(missing) - 1} other "
        "items: expected a checkpoint of a run with the same items"
      )
    self._groups = [state["groups"][name] for name in self._ids]
    self._grouped_for = state["measured_for"]
