"""Token sampling: the processed distribution, and draws from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.rollout import token_sampling
from azr_jax.rollout.token_sampling import Truncation

processed_logits, sample_tokens = (
  jax.jit(function, static_argnames="truncation")
  for function in (
    token_sampling.processed_logits,
    token_sampling.sample_tokens,
  )
)

PROBABILITIES = np.array([[0.5, 0.25, 0.15, 0.1]])
LOGITS = jnp.log(jnp.asarray(PROBABILITIES))


@pytest.mark.parametrize(
  "temperature, truncation, expected",
  [
    (1, Truncation(), [0.5, 0.25, 0.15, 0.1]),
    (1, Truncation(top_k=2), [2 / 3, 1 / 3, 0, 0]),
    (1, Truncation(top_p=0.6), [2 / 3, 1 / 3, 0, 0]),
    (1, Truncation(top_p=0.5), [1, 0, 0, 0]),
    (1, Truncation(top_k=3, top_p=0.8), [2 / 3, 1 / 3, 0, 0]),
    (0.5, Truncation(), [0.725, 0.181, 0.065, 0.029]),
    (0, Truncation(), [0.5, 0.25, 0.15, 0.1]),
    (0, Truncation(top_k=3, top_p=0.8), [0.5, 0.25, 0.15, 0.1]),
  ],
)
def test_processed_distribution(temperature, truncation, expected):
  """A neighbouring row of another temperature changes nothing."""
  logits = jnp.tile(LOGITS, (2, 1))
  temperatures = jnp.asarray([temperature, 0.7], jnp.float32)
  processed = processed_logits(logits, temperatures, truncation)
  probabilities = jax.nn.softmax(processed)[0]
  np.testing.assert_allclose(probabilities, expected, atol=1e-3)


@pytest.mark.parametrize(
  "truncation", [Truncation(), Truncation(top_k=2, top_p=0.5)]
)
def test_greedy_takes_the_first_of_the_most_likely(truncation):
  """Wherever it is in the vocabulary, and whatever the other rows are."""
  rng = np.random.default_rng(0)
  logits = rng.normal(size=(64, 300)).astype(np.float32)
  best = rng.integers(0, 300, (64, 2))
  logits[np.arange(64)[:, None], best] = 5.0
  temperature = np.tile(np.asarray([0.0, 1.0], np.float32), 32)
  keys = jax.random.split(jax.random.key(0), 64)
  tokens, logprobs = sample_tokens(
    jnp.asarray(logits), keys, jnp.asarray(temperature), truncation
  )
  greedy = temperature == 0
  np.testing.assert_array_equal(tokens[greedy], best.min(1)[greedy])
  own = 5.0 - np.logaddexp.reduce(logits.astype(np.float64), axis=1)
  np.testing.assert_allclose(logprobs[greedy], own[greedy], rtol=1e-4)


def test_draws_follow_the_distribution():
  keys = jax.random.split(jax.random.key(1), 4000)
  logits = jnp.broadcast_to(LOGITS, (4000, 4))
  tokens, _ = sample_tokens(logits, keys, jnp.ones(4000), Truncation())
  frequencies = np.bincount(np.asarray(tokens), minlength=4) / 4000
  np.testing.assert_allclose(frequencies, PROBABILITIES[0], atol=0.03)


@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 0.99])
def test_nucleus_is_the_shortest_sorted_prefix_that_reaches_p(top_p):
  rng = np.random.default_rng(0)
  logits = rng.normal(size=(8, 1000)).astype(np.float32) * 3
  kept_tokens = np.isfinite(
    processed_logits(jnp.asarray(logits), jnp.ones(8), Truncation(top_p=top_p))
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
  tokens, logprobs = sample_tokens(rows, keys, jnp.ones(draws), Truncation())
  probabilities = np.exp(logits - np.logaddexp.reduce(logits))
  counts = np.bincount(np.asarray(tokens), minlength=300)
  assert counts[::3].sum() == 0
  expected = probabilities * draws
  likely = expected > 5
  chi2 = np.sum((counts - expected)[likely] ** 2 / expected[likely])
  # Chi-square has mean n and standard deviation sqrt(2 n); six deviations above
  # the mean cannot be chance.
  assert chi2 < likely.sum() + 6 * np.sqrt(2 * likely.sum())
  np.testing.assert_allclose(
    np.exp(logprobs), probabilities[np.asarray(tokens)], rtol=1e-4
  )
