"""The formulas of the policy losses: one function each.

A loss takes the targets of a micro-batch, and its hyperparameters as keywords.
It returns the loss of each target and values for metrics, which are averaged
over trained targets. Nothing is aggregated here: the batch's `loss_weights`
from `packing.py` define how targets and sequences add up.

In the formulas, A is the target's advantage and r is the probability ratio of
the policy to the old policy. The old policy is the policy at the update's start
or, with `learner.ratio_to=sampled`, the sampler.
"""

from typing import TypeAlias

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from azr_jax.learner import segments
from azr_jax.types import Leaf


class Targets(flax.struct.PyTreeNode):
  """The targets of a micro-batch.

  Attributes:
    logprobs: log-probabilities under the policy.
    old_logprobs: log-probabilities under the old policy, without gradient.
    sampled_logprobs: log-probabilities reported by the sampler.
    advantages: A.
    mask: 1 where the model wrote the target.
    segment_ids: the index of the target's sequence in its row.
    chosen: 1 where `PolicyLoss.choose` selected the target. None if the loss
      selects none.
    is_on_policy: whether the old policy is the policy, so that every r is 1.
  """

  logprobs: Float[Leaf, "B S"]
  old_logprobs: Float[Leaf, "B S"]
  sampled_logprobs: Float[Leaf, "B S"]
  advantages: Float[Leaf, "B S"]
  mask: Float[Leaf, "B S"]
  segment_ids: Int[Leaf, "B S"]
  chosen: Float[Leaf, "B S"] | None = None
  is_on_policy: bool = flax.struct.field(pytree_node=False, default=False)

  @property
  def ratio(self) -> Float[Array, "B S"]:
    """The ratio r of each target."""
    return jnp.exp(self.logprobs - self.old_logprobs)


# The loss of each target, and per-target values by metric name.
Loss: TypeAlias = tuple[Float[Array, "B S"], dict[str, Float[Array, "B S"]]]


def clipped(
  targets: Targets, *, clip_low: float, clip_high: float, dual_clip: float
) -> Loss:
  """Returns PPO's clipped objective as a loss (AZR, eq. 9).

  -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A). With `dual_clip`, the loss
  is at most -dual_clip A where A is negative (dual-clip PPO, arXiv 1912.09729).
  """
  loss = _clipped(targets.ratio, targets.advantages, clip_low, clip_high)
  if dual_clip:
    limit = -dual_clip * targets.advantages
    loss = jnp.where(targets.advantages < 0, jnp.minimum(loss, limit), loss)
  return loss, _clip_fraction(targets, targets.ratio, clip_low, clip_high)


def _clipped(
  ratio: Float[Array, "B S"],
  advantages: Float[Array, "B S"],
  clip_low: float,
  clip_high: float,
) -> Float[Array, "B S"]:
  clipped = jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
  return -jnp.minimum(ratio * advantages, clipped * advantages)


def _clip_fraction(
  targets: Targets,
  ratio: Float[Array, "B S"],
  clip_low: float,
  clip_high: float,
) -> dict[str, Float[Array, "B S"]]:
  """Returns where ratios are outside the clip range; empty if all are 1."""
  if targets.is_on_policy:
    return {}
  outside = (ratio < 1 - clip_low) | (ratio > 1 + clip_high)
  return {"learner/clip_fraction": outside * 1.0}


def sequence_weighted(targets: Targets, *, iw_clip_max: float) -> Loss:
  """Returns REINFORCE with one importance weight per sequence.

  -w A log p, w = min(exp(log p(sequence) - log q(sequence)), iw_clip_max),
  where q is the sampler and w has no gradient (Countdown, section 4). Summed
  over a sequence's targets this is -w A log p(sequence).

  Metrics average over targets, so long sequences count more.
  """
  log_ratio = targets.logprobs - targets.sampled_logprobs
  log_weights = segments.sums(
    jax.lax.stop_gradient(log_ratio) * targets.mask, targets.segment_ids
  )
  # Clip before the exponential, which could overflow.
  weights = jnp.exp(jnp.minimum(log_weights, jnp.log(iw_clip_max)))
  return -weights * targets.advantages * targets.logprobs, {
    "learner/weight": weights,
    "learner/clip_fraction": (weights >= iw_clip_max) * 1.0,
  }


def cispo(targets: Targets, *, weight_max: float) -> Loss:
  """Returns CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5).

  -min(r, weight_max) A log p. The clipped r has no gradient, so every target
  keeps the gradient of its log p. As in the paper, r has no lower bound.
  """
  ratio = jax.lax.stop_gradient(targets.ratio)
  weights = jnp.minimum(ratio, weight_max)
  loss = -weights * targets.advantages * targets.logprobs
  # Counts ratios outside [0, weight_max]; none is below 0.
  return loss, _clip_fraction(targets, ratio, 1.0, weight_max - 1.0)


def gspo(targets: Targets, *, clip_low: float, clip_high: float) -> Loss:
  """Returns GSPO (arXiv 2507.18071, eq. 5 and 7).

  -min(s A, clip(s, 1 - clip_low, 1 + clip_high) A), where s is the geometric
  mean of r over the target's sequence. As in GSPO-token (eq. 14), s carries the
  gradient of the target's own log p. If the targets of a sequence share A and
  their weight, this equals GSPO's gradient. The paper's objective needs
  `learner.aggregation=sequence_mean`.
  """
  log_ratio = targets.logprobs - targets.old_logprobs
  mean = segments.means(
    jax.lax.stop_gradient(log_ratio), targets.mask, targets.segment_ids
  )
  own = targets.logprobs - jax.lax.stop_gradient(targets.logprobs)
  ratio = jnp.exp(mean + own)
  loss = _clipped(ratio, targets.advantages, clip_low, clip_high)
  return loss, _clip_fraction(targets, ratio, clip_low, clip_high)


def clip_cov(
  targets: Targets, *, clip_low: float, clip_high: float, dual_clip: float
) -> Loss:
  """Returns `clipped`, with 0 at the targets that `choose_clip_cov` selects.

  This is Clip-Cov (arXiv 2505.22617, section 4).
  """
  assert targets.chosen is not None
  loss, values = clipped(
    targets, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip
  )
  return loss * (1.0 - targets.chosen), values


def kl_cov(targets: Targets, *, coef: float) -> Loss:
  """Returns -r A, plus coef |log r| at the targets `choose_kl_cov` selects.

  This is KL-Cov (arXiv 2505.22617, section 4). |log r| stands in for the KL to
  the old policy, and has no gradient where r is 1.
  """
  assert targets.chosen is not None
  log_ratio = targets.logprobs - targets.old_logprobs
  penalty = coef * jnp.abs(log_ratio) * targets.chosen
  return -targets.ratio * targets.advantages + penalty, {}
