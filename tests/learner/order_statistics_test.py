"""Quantiles and largest values agree with sorting."""

import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.learner import order_statistics


@pytest.mark.parametrize("count", [1, 3, 17, 100])
def test_the_largest_are_those_that_sorting_finds(count):
  rng = np.random.default_rng(count)
  x = rng.normal(size=(2, 5, 13)).astype(np.float32) * 10.0 ** rng.integers(
    -6, 6, (2, 5, 13)
  )
  mask = (rng.random(x.shape) < 0.7).astype(np.float32)
  x = np.where(mask, x, np.nan).astype(np.float32)
  got = np.asarray(
    order_statistics.largest(
      jnp.asarray(x), jnp.asarray(mask), jnp.int32(count)
    )
  )
  kept = np.sort(x[mask > 0])[::-1][:count]
  np.testing.assert_array_equal(np.sort(x[got])[::-1], kept)


def test_equals_of_the_last_one_are_chosen_too():
  x = jnp.array([1.0, 0.0, -0.0, -1.0, 1.0])
  got = order_statistics.largest(x, jnp.ones(5), jnp.int32(1))
  np.testing.assert_array_equal(got, [True, False, False, False, True])


@pytest.mark.parametrize("fraction", [0.5, 0.9, 0.99])
def test_a_quantile_is_bounded_within_a_bin(fraction):
  rng = np.random.default_rng(0)
  x = np.exp(rng.normal(-7, 3, (4, 500))).astype(np.float32)
  mask = (rng.random(x.shape) < 0.9).astype(np.float32)
  # Two parts are counted separately, like micro-batches.
  first, second = (
    order_statistics.counts_from_edges(jnp.asarray(a), jnp.asarray(m))
    for a, m in ((x[:1], mask[:1]), (x[1:], mask[1:]))
  )
  kept = x[mask > 0]
  got = float(
    order_statistics.quantile(
      first + second, jnp.float32(len(kept)), jnp.float32(kept.max()), fraction
    )
  )
  want = np.quantile(kept, fraction, method="inverted_cdf")
  assert want <= got <= 1.076 * want


@pytest.mark.parametrize("value, want", [(0.0, 0.0), (2.5, 2.5), (1e4, 1e4)])
def test_a_quantile_of_equal_numbers_is_their_value(value, want):
  x = jnp.full((1, 3), value)
  counts = order_statistics.counts_from_edges(x, jnp.ones((1, 3)))
  got = order_statistics.quantile(
    counts, jnp.float32(3), jnp.float32(value), 0.5
  )
  assert float(got) == want
