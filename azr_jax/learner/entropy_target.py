"""An entropy coefficient that holds the policy's entropy near a target.

The coefficient c grows by a step after each update whose entropy was below the
target and falls by a step after the others; it acts only while the entropy is
at most the target (Skywork-OR1, arXiv 2505.22312, section 3.2). The paper takes
the entropy of the batch that it updates on. Here it is that of the batch
before, because that of a batch is known once its gradients are; the first
update has no bonus.
"""

import dataclasses

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from azr_jax.config.settings import Settings, setting
from azr_jax.types import Leaf


@dataclasses.dataclass(frozen=True)
class EntropyTargetSettings(Settings):
  """The target, and how the coefficient moves."""

  nats: float = setting(
    0.0,
    "entropy to hold, mean over trained tokens; 0: learner.entropy_coef counts",
    minimum=0,
  )
  start: float = setting(
    0.0, "coefficient before the first update", minimum=0, expert=True
  )
  step: float = setting(
    1e-4, "change of the coefficient after an update", above=0, expert=True
  )
  coef_max: float = setting(
    5e-3, "maximum of the coefficient", above=0, expert=True
  )


class EntropyControl(flax.struct.PyTreeNode):
  """The state between two updates; float32 [].

  Attributes:
    coef: c, 0 or more.
    entropy: that of the last update; infinite before the first.
  """

  coef: Leaf
  entropy: Leaf

  def active_coef(self, c: EntropyTargetSettings) -> Float[Array, ""]:
    """Returns the coefficient of the next update's bonus."""
    return jnp.where(self.entropy <= c.nats, self.coef, 0.0)

  def after(
    self, entropy: Float[Array, ""], c: EntropyTargetSettings
  ) -> "EntropyControl":
    """Returns the state after an update whose batch had an entropy."""
    step = jnp.where(entropy < c.nats, c.step, -c.step)
    coef = jnp.clip(self.coef + step, 0.0, c.coef_max)
    return EntropyControl(coef, entropy)


def start(c: EntropyTargetSettings) -> EntropyControl:
  """Returns the state before the first update."""
  return EntropyControl(jnp.float32(c.start), jnp.float32(jnp.inf))
