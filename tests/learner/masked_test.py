"""Sums and means over masked tokens."""

import jax.numpy as jnp

from azr_jax.learner import masked


def test_masked_mean_ignores_what_is_masked():
  x = jnp.array([[1.0, jnp.nan, 3.0]])
  mask = jnp.array([[1.0, 0.0, 1.0]])
  assert float(masked.masked_mean(x, mask)) == 2.0
  assert float(masked.masked_mean(x, jnp.zeros_like(mask))) == 0.0
