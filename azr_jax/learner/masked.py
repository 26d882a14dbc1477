"""Masked sums and means in float32, used for all of the learner's masking."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def masked_sum(
  x: Float[Array, "*B"], mask: Float[Array, "*B"]
) -> Float[Array, ""]:
  """Returns the float32 sum of x where mask is 1; elsewhere x may be NaN."""
  return jnp.sum(jnp.where(mask > 0, x, 0.0).astype(jnp.float32))


def masked_mean(
  x: Float[Array, "*B"], mask: Float[Array, "*B"]
) -> Float[Array, ""]:
  """Returns the mean of x where mask is 1; 0 when the mask is empty."""
  return masked_sum(x, mask) / jnp.maximum(jnp.sum(mask > 0), 1)
