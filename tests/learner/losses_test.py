"""Losses agree with hand-computed values."""

import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.learner import losses, masked


def test_kl_estimators_agree_with_the_closed_form():
  policy, reference = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
  exact = float(np.sum(policy * np.log(policy / reference)))
  log_ratio = jnp.log(policy / reference)[None]
  for name in ("k1", "k3"):
    estimate = losses.KL_ESTIMATORS[name](log_ratio)[0]
    assert float(jnp.sum(policy * estimate)) == pytest.approx(exact, rel=1e-5)
  assert float(losses.k2(jnp.full((1, 1), 0.2))[0, 0]) == pytest.approx(0.02)


def test_masked_mean_ignores_what_is_masked():
  x = jnp.array([[1.0, jnp.nan, 3.0]])
  mask = jnp.array([[1.0, 0.0, 1.0]])
  assert float(masked.masked_mean(x, mask)) == 2.0
  assert float(masked.masked_mean(x, jnp.zeros_like(mask))) == 0.0
