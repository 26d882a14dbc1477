"""Estimators of the KL divergence per token; float32."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float


def k1(log_ratio: Float[Array, "*B"]) -> Float[Array, "*B"]:
  """Returns the unbiased estimate x of KL(policy || reference).

  x = log p - log ref of a sampled token. As a loss on the policy's own samples
  its mean gradient is 0, so it measures the divergence but does not limit it.
  k3 limits it, and `FULL_KL` does so exactly.
  """
  return log_ratio


def k2(log_ratio: Float[Array, "*B"]) -> Float[Array, "*B"]:
  """Returns x^2 / 2: low variance, biased.

  As a loss, its mean gradient is the gradient of KL(policy || reference).
  """
  return 0.5 * log_ratio**2


def k3(log_ratio: Float[Array, "*B"]) -> Float[Array, "*B"]:
  """Returns exp(-x) - 1 + x: unbiased, never negative.

  As a loss, its mean gradient is the gradient of KL(reference || policy), not
  of KL(policy || reference), which it estimates.
  """
  return jnp.exp(-log_ratio) - 1.0 + log_ratio


KL_ESTIMATORS: dict[str, Callable[[Float[Array, "*B"]], Float[Array, "*B"]]] = {
  "k1": k1,
  "k2": k2,
  "k3": k3,
}
# Name of the exact KL over the whole vocabulary (`divergences.py`).
FULL_KL = "full"
