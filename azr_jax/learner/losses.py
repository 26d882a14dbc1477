"""Per-token losses: clipped surrogate, KL estimators. All float32.

Aggregation over tokens and sequences is not here: it is in the batch's
`loss_weights` (see packing.py).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


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


def negative_log_likelihood(logprobs: Float[Array, "B S"]) -> jax.Array:
  """The supervised loss."""
  return -logprobs


def k1(log_ratio: Float[Array, "B S"]) -> Float[Array, "B S"]:
  """Unbiased KL(policy || reference) estimate; log_ratio = policy - ref."""
  return log_ratio


def k2(log_ratio: Float[Array, "B S"]) -> Float[Array, "B S"]:
  """Half the squared log-ratio: low variance, biased."""
  return 0.5 * log_ratio**2


def k3(log_ratio: Float[Array, "B S"]) -> Float[Array, "B S"]:
  """Unbiased and non-negative: exp(-x) - 1 + x."""
  return jnp.exp(-log_ratio) - 1.0 + log_ratio


KL_ESTIMATORS: dict[str, Callable[[jax.Array], jax.Array]] = {
  "k1": k1,
  "k2": k2,
  "k3": k3,
}
