"""Losses agree with arithmetic done by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.learner import losses, masked

CLIP = dict(clip_low=0.2, clip_high=0.3)


@pytest.mark.parametrize(
  "ratio, advantage, want",
  [
    (1.0, 2.0, -2.0),
    (1.5, 2.0, -2.6),  # clipped at 1.3
    (0.5, 2.0, -1.0),  # the smaller side is not clipped
    (0.5, -2.0, 1.6),  # clipped at 0.8
    (1.5, -2.0, 3.0),
  ],
)
def test_clipped_surrogate(ratio, advantage, want):
  logprobs = jnp.log(jnp.full((1, 1), ratio))
  loss = losses.clipped_surrogate(
    logprobs, jnp.zeros((1, 1)), jnp.full((1, 1), advantage), **CLIP
  )
  assert float(loss[0, 0]) == pytest.approx(want, rel=1e-6)


# Two sequences, of one and of two trained tokens, then padding. The third
# column was not written by the model, so its ratio of e^9 must not count.
SEGMENTS = jnp.array([[1, 2, 2, 2, 0]])
MASK = jnp.array([[1.0, 1.0, 0.0, 1.0, 0.0]])
RATIOS = np.array([[0.5, 3.0, np.exp(9.0), 2.0, 7.0]])
ADVANTAGES = jnp.array([[2.0, -1.0, -1.0, -1.0, 5.0]])
LOGPROBS = jnp.array([[-0.7, -1.0, -2.0, -3.0, -4.0]])


def sequence_weighted(iw_clip_max, logprobs=LOGPROBS):
  return losses.sequence_weighted(
    logprobs,
    LOGPROBS - jnp.log(RATIOS),
    ADVANTAGES,
    MASK,
    SEGMENTS,
    iw_clip_max=iw_clip_max,
  )


@pytest.mark.parametrize("iw_clip_max, second", [(10.0, 6.0), (4.0, 4.0)])
def test_a_sequence_s_weight_is_its_clipped_product_of_ratios(
  iw_clip_max, second
):
  """exp(log 0.5) = 0.5 and exp(log 3 + log 2) = 6, at most iw_clip_max."""
  loss, weights = sequence_weighted(iw_clip_max)
  want = [0.5, second, second, second, 1.0]
  np.testing.assert_allclose(weights[0], want, rtol=1e-5)
  # -w A log p: -0.5 * 2 * -0.7 and -w * -1 * log p.
  np.testing.assert_allclose(
    loss[0, :4], [0.7, -second, -2 * second, -3 * second], rtol=1e-5
  )


def test_a_sequence_s_weight_has_no_gradient():
  def total(logprobs):
    return jnp.sum(sequence_weighted(4.0, logprobs)[0] * MASK)

  grads = jax.grad(total)(LOGPROBS)
  # d(-w A log p) / d(log p) = -w A, also where w is clipped.
  np.testing.assert_allclose(grads[0], [-1.0, 4.0, 0.0, 4.0, 0.0], rtol=1e-5)


def test_a_sequence_s_weight_does_not_overflow():
  _, weights = sequence_weighted(4.0, LOGPROBS + 1000.0)
  np.testing.assert_allclose(weights[0, :4], 4.0, rtol=1e-5)


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
