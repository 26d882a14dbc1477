"""What a system is to the training loop, and what it hands back."""

from typing import Any, Protocol

from azr_jax.rollout.policy import Policy
from azr_jax.types import RolloutBatch


class System(Protocol):
  """A way to turn a policy into graded trajectories."""

  def collect(self, policy: Policy, step: int) -> RolloutBatch:
    """Samples, grades and returns this step's trajectories."""
    ...

  def state_dict(self) -> dict[str, Any]:
    """Everything that changes from step to step, as JSON values."""
    ...

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned."""
    ...
