"""Selects the targets that Clip-Cov and KL-Cov treat differently.

A target is selected by its covariance, its term of Cov(log p, A) over the whole
batch (arXiv 2505.22617).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from azr_jax.learner import masked, order_statistics


def covariances(
  logprobs: Float[Array, "*B"],
  advantages: Float[Array, "*B"],
  mask: Float[Array, "*B"],
) -> Float[Array, "*B"]:
  """Returns each target's term of Cov(log p, A) over a batch.

  (log p - mean log p) (A - mean A) (arXiv 2505.22617, section 4).
  """
  logprobs = logprobs - masked.masked_mean(logprobs, mask)
  return logprobs * (advantages - masked.masked_mean(advantages, mask))


def choose_clip_cov(
  covariances: Float[Array, "*B"],
  mask: Float[Array, "*B"],
  key: Key[Array, ""],
  *,
  fraction: float,
  low: float,
  high: float,
) -> Bool[Array, "*B"]:
  """Samples a fraction of all targets, from those with covariance in range.

  Selects all of those if they are fewer.

  Args:
    covariances: covariances of the whole batch's targets.
    mask: 1 where the model wrote the target.
    key: random key of the selection; consumed.
    fraction: fraction of all targets to select.
    low: exclusive lower bound of the selected covariances.
    high: exclusive upper bound of the selected covariances.
  """
  inside = (covariances > low) & (covariances < high)
  draws = jax.random.uniform(key, covariances.shape)
  return order_statistics.largest(draws, inside * mask, _count(mask, fraction))


def choose_kl_cov(
  covariances: Float[Array, "*B"],
  mask: Float[Array, "*B"],
  key: Key[Array, ""],
  *,
  fraction: float,
) -> Bool[Array, "*B"]:
  """Returns the targets with the largest covariances; the key is unused."""
  del key
  return order_statistics.largest(covariances, mask, _count(mask, fraction))


def _count(mask: Float[Array, "*B"], fraction: float) -> Int[Array, ""]:
  """Returns a fraction of the target count, rounded down, at least 1."""
  count = jnp.floor(fraction * jnp.sum(mask)).astype(jnp.int32)
  return jnp.maximum(count, 1)
