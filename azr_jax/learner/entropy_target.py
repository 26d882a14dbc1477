"""An entropy coefficient that holds the policy's entropy near a target.

The coefficient c grows by a step after each update whose entropy was below the
target, and shrinks by a step otherwise. It is active only while the entropy is
at most the target (Skywork-OR1, arXiv 2505.22312, section 3.2). The paper uses
the entropy of the batch being updated on. Here it is the previous batch's,
because a batch's entropy is known only once its gradients are. The first update
therefore has no bonus.
"""

import dataclasses
from typing import NamedTuple

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from azr_jax.config.settings import Settings, setting
from azr_jax.types import Leaf


@dataclasses.dataclass(frozen=True)
class EntropyTargetSettings(Settings):
  """The target entropy, and how the coefficient moves."""

  nats: float = setting(
    0.0,
    "target mean entropy of trained tokens; 0 uses learner.entropy_coef",
    minimum=0,
  )
  start: float = setting(0.0, "initial coefficient", minimum=0, expert=True)
  step: float = setting(
    1e-4, "change of the coefficient per update", above=0, expert=True
  )
  coef_max: float = setting(
    5e-3, "maximum of the coefficient", above=0, expert=True
  )


class EntropyControl(flax.struct.PyTreeNode):
  """The coefficient's state between two updates.

  Attributes:
    coef: c, 0 or more.
    entropy: entropy of the last update; infinite before the first.
  """

  coef: Float32[Leaf, ""]
  entropy: Float32[Leaf, ""]

  def active_coef(self, nats: float) -> Float[Array, ""]:
    """Returns the coefficient of the next update's bonus.

    Args:
      nats: the target entropy.
    """
    return jnp.where(self.entropy <= nats, self.coef, 0.0)

  def after(
    self,
    entropy: Float[Array, ""],
    *,
    nats: float,
    step: float,
    coef_max: float,
  ) -> "EntropyControl":
    """Returns the state after an update whose batch had the given entropy.

    Args:
      entropy: mean entropy of the batch's trained tokens.
      nats: the target entropy.
      step: change of the coefficient.
      coef_max: maximum of the coefficient.
    """
    change = jnp.where(entropy < nats, step, -step)
    coef = jnp.clip(self.coef + change, 0.0, coef_max)
    return EntropyControl(coef, entropy)


class EntropyTarget(NamedTuple):
  """Hyperparameters of an adaptive coefficient; see `EntropyTargetSettings`."""

  nats: float
  start: float
  step: float
  coef_max: float

  def adapt(
    self, control: EntropyControl, entropy: Float[Array, ""]
  ) -> EntropyControl:
    """Returns the state after an update; see `EntropyControl.after`."""
    return control.after(
      entropy, nats=self.nats, step=self.step, coef_max=self.coef_max
    )


def start(coef: float) -> EntropyControl:
  """Returns the state before the first update.

  Args:
    coef: the initial coefficient.
  """
  return EntropyControl(jnp.float32(coef), jnp.float32(jnp.inf))
