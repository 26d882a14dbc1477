"""An entropy coefficient that holds the policy's entropy near a target.

The coefficient c grows by a step after each update whose entropy was below the
target, and shrinks by a step otherwise. It is active only while the entropy is
at most the target (Skywork-OR1, arXiv 2505.22312, section 3.2). The paper uses
the entropy of the batch being updated on. Here it is the previous batch's,
because a batch's entropy is known only once its gradients are. The first update
therefore has no bonus.
"""

import dataclasses

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

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
  """The coefficient's state between two updates; float32 [].

  Attributes:
    coef: c, 0 or more.
    entropy: entropy of the last update; infinite before the first.
  """

  coef: Leaf
  entropy: Leaf

  def active_coef(self, c: EntropyTargetSettings) -> Float[Array, ""]:
    """Returns the coefficient of the next update's bonus."""
    return jnp.where(self.entropy <= c.nats, self.coef, 0.0)

  def after(
    self, entropy: Float[Array, ""], c: EntropyTargetSettings
  ) -> "EntropyControl":
    """Returns the state after an update whose batch had the given entropy."""
    step = jnp.where(entropy < c.nats, c.step, -c.step)
    coef = jnp.clip(self.coef + step, 0.0, c.coef_max)
    return EntropyControl(coef, entropy)


def start(c: EntropyTargetSettings) -> EntropyControl:
  """Returns the state before the first update."""
  return EntropyControl(jnp.float32(c.start), jnp.float32(jnp.inf))
