"""Token sampling: the processed distribution and draws from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.rollout.token_sampling import (
  SamplingParams,
  processed_logits,
  sample_tokens,
)

PROBABILITIES = np.array([[0.5, 0.25, 0.15, 0.1]])
LOGITS = jnp.log(jnp.asarray(PROBABILITIES))


@pytest.mark.parametrize(
  "sampling, expected",
  [
    (SamplingParams(), [0.5, 0.25, 0.15, 0.1]),
    (SamplingParams(top_k=2), [2 / 3, 1 / 3, 0, 0]),
    (SamplingParams(top_p=0.6), [2 / 3, 1 / 3, 0, 0]),
    (SamplingParams(top_p=0.5), [1, 0, 0, 0]),
    (SamplingParams(top_k=3, top_p=0.8), [2 / 3, 1 / 3, 0, 0]),
    (SamplingParams(temperature=0.5), [0.725, 0.181, 0.065, 0.029]),
  ],
)
def test_processed_distribution(sampling, expected):
  probabilities = jax.nn.softmax(processed_logits(LOGITS, sampling))[0]
  np.testing.assert_allclose(probabilities, expected, atol=1e-3)


def test_greedy_takes_the_most_likely():
  keys = jax.random.split(jax.random.key(0), 1)
  token, logprob = sample_tokens(LOGITS, keys, SamplingParams(temperature=0.0))
  assert int(token[0]) == 0
  assert float(logprob[0]) == pytest.approx(np.log(0.5), rel=1e-5)


def test_draws_follow_the_distribution():
  keys = jax.random.split(jax.random.key(1), 4000)
  logits = jnp.broadcast_to(LOGITS, (4000, 4))
  tokens, _ = sample_tokens(logits, keys, SamplingParams())
  frequencies = np.bincount(np.asarray(tokens), minlength=4) / 4000
  np.testing.assert_allclose(frequencies, PROBABILITIES[0], atol=0.03)


@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 0.99])
def test_nucleus_is_the_shortest_sorted_prefix_that_reaches_p(top_p):
  rng = np.random.default_rng(0)
  logits = rng.normal(size=(8, 1000)).astype(np.float32) * 3
  kept_tokens = np.isfinite(
    processed_logits(jnp.asarray(logits), SamplingParams(top_p=top_p))
  )
  p = np.exp(logits.astype(np.float64))
  p /= p.sum(-1, keepdims=True)
  for kept, probabilities in zip(kept_tokens, p, strict=True):
    order = np.argsort(-probabilities)
    count = int(np.searchsorted(np.cumsum(probabilities[order]), top_p)) + 1
    assert set(np.flatnonzero(kept)) == set(order[:count])


def test_draws_over_many_blocks_follow_the_distribution():
  """A chi-square test over 300 tokens, a third of which are impossible."""
  rng = np.random.default_rng(1)
  logits = rng.normal(size=300).astype(np.float32) * 2
  logits[::3] = -np.inf
  draws = 40_000
  keys = jax.random.split(jax.random.key(2), draws)
  rows = jnp.broadcast_to(jnp.asarray(logits), (draws, 300))
  tokens, logprobs = sample_tokens(rows, keys, SamplingParams())
  probabilities = np.exp(logits - np.logaddexp.reduce(logits))
  counts = np.bincount(np.asarray(tokens), minlength=300)
  assert counts[::3].sum() == 0
  expected = probabilities * draws
  likely = expected > 5
  chi2 = np.sum((counts - expected)[likely] ** 2 / expected[likely])
  # Chi-square has mean n and standard deviation sqrt(2 n), so a value six
  # deviations above the mean is no accident.
  assert chi2 < likely.sum() + 6 * np.sqrt(2 * likely.sum())
  np.testing.assert_allclose(
    np.exp(logprobs), probabilities[np.asarray(tokens)], rtol=1e-4
  )
