"""The losses of `forward_backward`: sums over tokens, as in the Tinker API.

With lp = log p(target) by the present parameters, q = `logprobs`, the target's
log-probability when it was sampled, A = `advantages`, and r = exp(lp - q):

| loss | minimizes the sum over tokens of |
| --- | --- |
| `cross_entropy` | -w lp, with w = `weights` of any sign |
| `importance_sampling` | -r A |
| `ppo` | -min(r A, clip(r) A) |
| `cispo` | -sg(clip(r)) lp A |
| `dro` | -(lp A - beta / 2 (lp - q)^2) |
| `gspo` | -min(s A, clip(s) A), s = sg(exp(mean(lp - q))) exp(lp - sg(lp)) |

sg stops gradients. clip limits the ratio itself to `clip_low_threshold` and
`clip_high_threshold`. The mean of `gspo` is over the targets of the sequence
whose `sequence_ratio_mask` is not 0. Nothing is divided by a number of tokens
or sequences.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from azr_jax.learner import segments

# The inputs of a loss by name, per token.
Inputs: TypeAlias = Mapping[str, Float[Array, "B S ..."]]
# The numbers that configure a loss, by name.
Config: TypeAlias = Mapping[str, Float[Array, ""]]
_CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
_SAMPLED = ("logprobs", "advantages")


@dataclasses.dataclass(frozen=True)
class LossInputs:
  """What a loss reads about the tokens of some rows.

  Attributes:
    lp: the log-probability of each target.
    inputs: the other inputs by name.
    config: the numbers of the loss.
    segment_ids: which tokens of a row belong to the same sequence.
  """

  lp: Float[Array, "B S ..."]
  inputs: Inputs
  config: Config
  segment_ids: Int[Array, "B S"]

  @property
  def log_ratio(self) -> Float[Array, "B S"]:
    """lp - q; 0 where A is 0.

    Prompts have q = 0, so their ratios mean nothing. They could overflow.
    """
    is_used = self.inputs["advantages"] != 0
    return jnp.where(is_used, self.lp - self.inputs["logprobs"], 0.0)

  def clipped(self, ratio: Float[Array, "B S"]) -> Float[Array, "B S"]:
    """Returns a ratio within the configured bounds."""
    config = self.config
    return jnp.clip(
      ratio, config["clip_low_threshold"], config["clip_high_threshold"]
    )


# The loss of each token.
LossFn: TypeAlias = Callable[[LossInputs], Float[Array, "B S ..."]]


@dataclasses.dataclass(frozen=True)
class Loss:
  """A loss, with the names of everything that it reads.

  Attributes:
    value: the loss of each token.
    inputs: the names of its inputs besides the targets.
    config: its numbers with their defaults.
  """

  value: LossFn
  inputs: tuple[str, ...]
  config: Mapping[str, float] = dataclasses.field(default_factory=dict)


def _cross_entropy(of: LossInputs) -> Float[Array, "B S ..."]:
  return -of.inputs["weights"] * of.lp


def _importance_sampling(of: LossInputs) -> Float[Array, "B S"]:
  return -jnp.exp(of.log_ratio) * of.inputs["advantages"]


def _ppo(of: LossInputs) -> Float[Array, "B S"]:
  ratio, advantages = jnp.exp(of.log_ratio), of.inputs["advantages"]
  return -jnp.minimum(ratio * advantages, of.clipped(ratio) * advantages)


def _cispo(of: LossInputs) -> Float[Array, "B S"]:
  weight = jax.lax.stop_gradient(of.clipped(jnp.exp(of.log_ratio)))
  return -weight * of.lp * of.inputs["advantages"]


def _dro(of: LossInputs) -> Float[Array, "B S"]:
  gap = of.lp - of.inputs["logprobs"]
  penalty = 0.5 * of.config["beta"] * gap**2
  return penalty - of.lp * of.inputs["advantages"]


def _gspo(of: LossInputs) -> Float[Array, "B S"]:
  advantages, lp = of.inputs["advantages"], of.lp
  mask = jnp.where(of.inputs["sequence_ratio_mask"] != 0, 1.0, 0.0)
  gap = jnp.where(mask > 0, lp - of.inputs["logprobs"], 0.0)
  mean = segments.means(gap, mask, of.segment_ids)
  ratio = jax.lax.stop_gradient(jnp.exp(mean))
  ratio = ratio * jnp.exp(lp - jax.lax.stop_gradient(lp))
  return -jnp.minimum(ratio * advantages, of.clipped(ratio) * advantages)


LOSSES: Mapping[str, Loss] = {
  "cross_entropy": Loss(_cross_entropy, ("weights",)),
  "importance_sampling": Loss(_importance_sampling, _SAMPLED),
  "ppo": Loss(_ppo, _SAMPLED, _CLIP),
  "cispo": Loss(_cispo, _SAMPLED, _CLIP),
  "dro": Loss(_dro, _SAMPLED, {"beta": 0.05}),
  "gspo": Loss(_gspo, (*_SAMPLED, "sequence_ratio_mask"), _CLIP),
}


def find(name: str) -> Loss:
  """Returns the loss of a name.

  Raises:
    ValueError: there is none; the message names the losses.
  """
  if name not in LOSSES:
    known = ", ".join(LOSSES)
    hint = ""
    if name.startswith("stable_reinforce"):
      hint = ", such as importance_sampling: this one has no public definition"
    raise ValueError(f"loss_fn={name!r}: expected one of {known}{hint}")
  return LOSSES[name]


def configured(name: str, given: Mapping[str, float]) -> dict[str, float]:
  """Returns the numbers of a loss, with defaults for those not given.

  Raises:
    ValueError: a number does not belong to the loss.
  """
  defaults = find(name).config
  unknown = sorted({*given} - {*defaults})
  if unknown:
    expected = ", ".join(defaults) or "no configuration"
    raise ValueError(
      f"loss_fn_config {unknown[0]!r} of loss_fn={name!r}: expected {expected}"
    )
  return {**defaults, **given}
