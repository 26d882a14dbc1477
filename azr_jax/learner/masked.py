"""Masked reductions; the one place where a mask meets a mean."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def masked_sum(
  x: Float[Array, "*B"], mask: Float[Array, "*B"]
) -> Float[Array, ""]:
  """Sums x where mask is 1, in float32; anything under a 0 is ignored."""
  return jnp.sum(jnp.where(mask > 0, x, 0.0).astype(jnp.float32))


def masked_mean(
  x: Float[Array, "*B"], mask: Float[Array, "*B"]
) -> Float[Array, ""]:
  """Averages x where mask is 1; 0 when the mask is empty."""
  return masked_sum(x, mask) / jnp.maximum(jnp.sum(mask > 0), 1)
