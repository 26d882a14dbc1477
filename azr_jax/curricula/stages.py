"""Stages of training, each on what most is to be learned from then.

Of anything that can be measured: questions, programs, puzzles. Which of them
is whose is told by ids.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from azr_jax.curricula import improvement_potential, passes
from azr_jax.curricula.improvement_potential import Measured


class Stages:
  """Groups of things by a measurement; its state is for checkpoints."""

  def __init__(
    self,
    ids: Sequence[str],
    measured: Sequence[Measured] | None,
    *,
    order: str,
    grouping: str,
    stage_steps: int,
    seed: int,
  ):
    """Groups what was measured.

    Args:
      ids: of the things, unique.
      measured: how each was answered; None: not measured yet, all are one
        group.
      order: one of `potential.ORDERS`.
      grouping: one of `potential.GROUPINGS`.
      stage_steps: steps of a stage.
      seed: root of the draws.
    """
    self._ids = list(ids)
    self._order = order
    self._grouping = grouping
    self._stage_steps = stage_steps
    self._seed = seed
    self._groups = [1] * len(self._ids)
    self._measured_for = 0  # The stage.
    if measured is not None:
      self.regroup(measured, 1)

  def stage(self, step: int) -> int:
    """The stage of a step, both from 1 on."""
    return improvement_potential.stage_of(step, self._stage_steps)

  def wants_measurement(self, step: int) -> bool:
    """Whether the things are to be measured before a step is taken."""
    return (
      self._order in improvement_potential.ONLINE
      and self._measured_for < self.stage(step)
    )

  def regroup(self, measured: Sequence[Measured], step: int) -> None:
    """Groups anew, by a measurement that was made before a step."""
    self._groups = improvement_potential.make_groups(
      measured, self._order, self._grouping, self._seed
    )
    self._measured_for = self.stage(step)

  def turn(self, step: int, count: int) -> list[int]:
    """What a step takes, by index: passes over its stage's pool."""
    stage = self.stage(step)
    pool = improvement_potential.pool(self._groups, self._order, stage, count)
    first = (step - 1 - (stage - 1) * self._stage_steps) * count
    chosen = passes.turn((self._seed, stage), len(pool), first, count)
    return [pool[place] for place in chosen]

  def metrics(self, step: int, name: str) -> dict[str, float]:
    """The stage, and the sizes of the groups, for the system of a name."""
    sizes = np.bincount(
      self._groups, minlength=improvement_potential.STAGES + 1
    )
    return {f"stage/{name}/number": float(self.stage(step))} | {
      f"stage/{name}/group{group}": float(sizes[group])
      for group in range(1, improvement_potential.STAGES + 1)
    }

  def state_dict(self) -> dict[str, Any]:
    """The groups by id, and the stage that they were measured for."""
    return {
      "groups": dict(zip(self._ids, self._groups, strict=True)),
      "measured_for": self._measured_for,
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned.

    Raises:
      ValueError: the state is of other things.
    """
    missing = [name for name in self._ids if name not in state["groups"]]
    if missing:
      raise ValueError(
        f"a checkpoint without {missing[0]!r} and {len(missing) - 1} others: "
        "expected one of a run with the same questions"
      )
    self._groups = [state["groups"][name] for name in self._ids]
    self._measured_for = state["measured_for"]
