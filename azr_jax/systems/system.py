"""What a system is to the training loop, and what it hands back."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

from azr_jax import types
from azr_jax.rollout.policy import Policy


@dataclasses.dataclass(frozen=True)
class Collected:
  """One step's harvest: what to learn from, and what happened on the way."""

  trajectories: Sequence[types.Trajectory]
  metrics: dict[str, float]


class System(Protocol):
  """A way to turn a policy into graded trajectories."""

  def collect(self, policy: Policy, step: int) -> Collected:
    """Samples, grades and returns this step's trajectories."""
    ...

  def state_dict(self) -> dict[str, Any]:
    """Everything that changes from step to step, as JSON values."""
    ...

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    ...
