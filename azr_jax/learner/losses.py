"""Per-token losses: policy surrogates, KL estimators. All float32.

They are not aggregated here: the batch's `loss_weights`, which `packing.py`
makes, say how tokens and sequences add up.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def clipped_surrogate(
  logprobs: Float[Array, "B S"],
  old_logprobs: Float[Array, "B S"],
  advantages: Float[Array, "B S"],
  *,
  clip_low: float,
  clip_high: float,
) -> Float[Array, "B S"]:
  """Returns PPO's clipped objective as a loss (AZR, eq. 9).

  -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), r = exp(log p - log old).

  Args:
    logprobs: log p of the targets under the policy.
    old_logprobs: log old, the same when they were sampled.
    advantages: A of each target.
    clip_low: how far below 1 the ratio r still has a gradient.
    clip_high: how far above 1.
  """
  ratio = jnp.exp(logprobs - old_logprobs)
  clipped = jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
  return -jnp.minimum(ratio * advantages, clipped * advantages)


def sequence_weighted(
  logprobs: Float[Array, "B S"],
  old_logprobs: Float[Array, "B S"],
  advantages: Float[Array, "B S"],
  mask: Float[Array, "B S"],
  segment_ids: Int[Array, "B S"],
  *,
  iw_clip_max: float,
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
  """Returns REINFORCE with a weight per sequence (Countdown, section 4).

  -w A log p, w = min(exp(log p(sequence) - log old(sequence)), iw_clip_max),
  where w has no gradient. Summed over a sequence's tokens this is
  -w A log p(sequence).

  Args:
    logprobs: log p of the targets under the policy.
    old_logprobs: log old, the same when they were sampled.
    advantages: A of each target.
    mask: 1 where the target was written by the model.
    segment_ids: which sequence of its row a target belongs to.
    iw_clip_max: the largest weight.

  Returns:
    The loss, and w of each target's sequence.
  """
  log_ratio = jax.lax.stop_gradient(logprobs - old_logprobs) * mask

  def sum_sequences(log_ratio_S: jax.Array, segments_S: jax.Array) -> jax.Array:
    sums = jax.ops.segment_sum(log_ratio_S, segments_S, segments_S.shape[0] + 1)
    return sums[segments_S]

  log_weights = jax.vmap(sum_sequences)(log_ratio, segment_ids)
  # The clip comes before the exponential, which could overflow.
  weights = jnp.exp(jnp.minimum(log_weights, jnp.log(iw_clip_max)))
  return -weights * advantages * logprobs, weights


def negative_log_likelihood(
  logprobs: Float[Array, "B S"],
) -> Float[Array, "B S"]:
  """Returns the supervised loss, -log p."""
  return -logprobs


def k1(log_ratio: Float[Array, "B S"]) -> Float[Array, "B S"]:
  """Returns the unbiased estimate x of KL(policy || reference).

  x = log p - log ref of a sampled token. As a loss on the policy's own samples
  its gradient is 0 on average, so it shows the divergence but does not limit
  it. k3 limits it, and `FULL_KL` does so exactly.
  """
  return log_ratio


def k2(log_ratio: Float[Array, "B S"]) -> Float[Array, "B S"]:
  """Returns x^2 / 2: low variance, biased."""
  return 0.5 * log_ratio**2


def k3(log_ratio: Float[Array, "B S"]) -> Float[Array, "B S"]:
  """Returns exp(-x) - 1 + x: unbiased, never negative, a biased gradient."""
  return jnp.exp(-log_ratio) - 1.0 + log_ratio


KL_ESTIMATORS: dict[str, Callable[[jax.Array], jax.Array]] = {
  "k1": k1,
  "k2": k2,
  "k3": k3,
}
# The name of the KL over the whole vocabulary, from `logprobs.chunked_kl`.
FULL_KL = "full"
POLICY_LOSSES = ("clipped", "sequence_weighted")
