"""SEC's bandit against values computed by hand."""

import collections

import numpy as np
import pytest
from buckets import NAMES, make_buckets, rng

from azr_jax.curricula.bandit import Bandit, BanditSettings
from azr_jax.curricula.curriculum import SampledItem


def items_of(*buckets):
  return [SampledItem(index, bucket) for index, bucket in enumerate(buckets)]


def learn(bandit, buckets, gains):
  bandit.update(1, items_of(*buckets), [0.5] * len(gains), gains)


def values(bandit):
  return [bandit.metrics()[f"value/{name}"] for name in NAMES]


def test_values_are_moving_means_of_the_gains():
  bandit = Bandit(make_buckets(), **vars(BanditSettings(learning_rate=0.5)))
  learn(bandit, (0, 0, 1), (1.0, 0.5, 0.2))
  assert values(bandit) == pytest.approx([0.375, 0.1, 0.0])
  # A bucket that was not sampled keeps its value.
  learn(bandit, (1,), (0.5,))
  assert values(bandit) == pytest.approx([0.375, 0.3, 0.0])


def test_a_bucket_that_was_not_sampled_may_be_forgotten():
  settings = BanditSettings(learning_rate=0.25, forgets_unseen=True)
  bandit = Bandit(make_buckets(), **vars(settings))
  learn(bandit, (0, 1), (1.0, 0.4))
  learn(bandit, (1,), (0.4,))
  assert values(bandit) == pytest.approx([0.25 * 0.75, 0.175, 0.0])


def test_probabilities_are_a_softmax_of_the_values():
  bandit = Bandit(make_buckets(), **vars(BanditSettings(1.0, temperature=0.5)))
  assert bandit.probabilities() == pytest.approx([1 / 3] * 3)
  learn(bandit, (0, 1, 2), (1.0, 0.5, 0.0))
  weights = np.exp([2.0, 1.0, 0.0])
  assert bandit.probabilities() == pytest.approx(weights / weights.sum())
  counts = collections.Counter(
    item.bucket for item in bandit.sample(2, 5000, rng())
  )
  assert counts[0] / 5000 == pytest.approx(0.665, abs=0.02)
  assert bandit.metrics()["probability/easy"] == pytest.approx(0.665, abs=1e-3)


def test_a_small_temperature_takes_the_best_bucket_that_has_items():
  bandit = Bandit(make_buckets((3, 0, 3)), **vars(BanditSettings(1.0, 1e-4)))
  learn(bandit, (0, 1, 2), (0.2, 0.9, 0.5))
  assert bandit.probabilities().tolist() == [0.0, 0.0, 1.0]
