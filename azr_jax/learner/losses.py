"""Per-token losses: clipped surrogate, KL estimators. All float32.

Aggregation over tokens and sequences is not here: it is in the batch's
`loss_weights` (see packing.py).
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
  """PPO's clipped objective as a loss (AZR eq. 9).

  -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), r = exp(logp - old).
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
  """REINFORCE with one importance weight per sequence (seed 003, section 4).

  -w A log p, w = min(exp(log p(sequence) - log old(sequence)), iw_clip_max),
  a constant. Summed over a sequence's tokens this is -w A log p(sequence).

  Args:
    logprobs: of the targets under the policy.
    old_logprobs: of the targets when they were sampled.
    advantages: of each target.
    mask: 1 where the target was written by the model.
    segment_ids: which sequence of its row a target belongs to.
    iw_clip_max: the largest weight.

  Returns:
    The loss, and the weight of each target's sequence.
  """
  log_ratio = jax.lax.stop_gradient(logprobs - old_logprobs) * mask

  def of_sequences(log_ratio_S: jax.Array, segments_S: jax.Array) -> jax.Array:
    sums = jax.ops.segment_sum(log_ratio_S, segments_S, segments_S.shape[0] + 1)
    return sums[segments_S]

  log_weights = jax.vmap(of_sequences)(log_ratio, segment_ids)
  # Clipped before the exponential, which may overflow.
  weights = jnp.exp(jnp.minimum(log_weights, jnp.log(iw_clip_max)))
  return -weights * advantages * logprobs, weights


def negative_log_likelihood(logprobs: Float[Array, "B S"]) -> jax.Array:
  """The supervised loss."""
  return -logprobs


def k1(log_ratio: Float[Array, "B S"]) -> Float[Array, "B S"]:
  """Unbiased KL(policy || reference) estimate; log_ratio = policy - ref.

  As a loss on the policy's own samples its gradient is 0 on average: it shows
  the divergence and does not hold it. k3 does, and `FULL_KL` exactly.
  """
  return log_ratio


def k2(log_ratio: Float[Array, "B S"]) -> Float[Array, "B S"]:
  """Half the squared log-ratio: low variance, biased."""
  return 0.5 * log_ratio**2


def k3(log_ratio: Float[Array, "B S"]) -> Float[Array, "B S"]:
  """Unbiased and non-negative: exp(-x) - 1 + x; its gradient is biased."""
  return jnp.exp(-log_ratio) - 1.0 + log_ratio


KL_ESTIMATORS: dict[str, Callable[[jax.Array], jax.Array]] = {
  "k1": k1,
  "k2": k2,
  "k3": k3,
}
# The KL over the whole vocabulary, by `logprobs.chunked_kl`.
FULL_KL = "full"
POLICY_LOSSES = ("clipped", "sequence_weighted")
