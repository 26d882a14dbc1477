"""KL estimators agree with hand-computed values."""

import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.learner import kl_estimators


def test_kl_estimators_agree_with_the_closed_form():
  policy, reference = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
  exact = float(np.sum(policy * np.log(policy / reference)))
  log_ratio = jnp.log(policy / reference)[None]
  for name in ("k1", "k3"):
    estimate = kl_estimators.KL_ESTIMATORS[name](log_ratio)[0]
    assert float(jnp.sum(policy * estimate)) == pytest.approx(exact, rel=1e-5)
  k2 = kl_estimators.k2(jnp.full((1, 1), 0.2))
  assert float(k2[0, 0]) == pytest.approx(0.02)
