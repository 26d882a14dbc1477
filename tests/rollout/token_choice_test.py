"""Token choice: the processed distribution and draws from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.rollout.token_choice import (
  TokenChoice,
  choose,
  processed_logprobs,
)

PROBABILITIES = np.array([[0.5, 0.25, 0.15, 0.1]])
LOGITS = jnp.log(jnp.asarray(PROBABILITIES))


@pytest.mark.parametrize(
  "choice, want",
  [
    (TokenChoice(), [0.5, 0.25, 0.15, 0.1]),
    (TokenChoice(top_k=2), [2 / 3, 1 / 3, 0, 0]),
    (TokenChoice(top_p=0.6), [2 / 3, 1 / 3, 0, 0]),
    (TokenChoice(top_p=0.5), [1, 0, 0, 0]),
    (TokenChoice(top_k=3, top_p=0.8), [2 / 3, 1 / 3, 0, 0]),
    (TokenChoice(temperature=0.5), [0.725, 0.181, 0.065, 0.029]),
  ],
)
def test_processed_distribution(choice, want):
  got = np.exp(processed_logprobs(LOGITS, choice))[0]
  np.testing.assert_allclose(got, want, atol=1e-3)


def test_greedy_takes_the_most_likely():
  keys = jax.random.split(jax.random.key(0), 1)
  token, logprob = choose(LOGITS, keys, TokenChoice(temperature=0.0))
  assert int(token[0]) == 0
  assert float(logprob[0]) == pytest.approx(np.log(0.5), rel=1e-5)


def test_draws_follow_the_distribution():
  keys = jax.random.split(jax.random.key(1), 4000)
  logits = jnp.broadcast_to(LOGITS, (4000, 4))
  tokens, _ = choose(logits, keys, TokenChoice())
  shares = np.bincount(np.asarray(tokens), minlength=4) / 4000
  np.testing.assert_allclose(shares, PROBABILITIES[0], atol=0.03)
