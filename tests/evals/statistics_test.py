"""Errors and intervals against scipy, enumeration and simulation."""

import itertools
import math

import numpy as np
import pytest
import scipy
from typed import present

from azr_jax.evals import statistics

RESAMPLES = 20_000


def compared(first, second, confidence=0.95, resamples=RESAMPLES):
  return statistics.difference(
    np.asarray(first, float),
    np.asarray(second, float),
    resamples,
    confidence,
    np.random.default_rng(0),
  )


def outcomes(seeds, items, fraction, seed):
  rng = np.random.default_rng(seed)
  return (rng.random((seeds, items)) < fraction).astype(float)


def test_the_errors_of_a_score_are_those_of_scipy():
  values = outcomes(3, 50, 0.4, seed=1)
  found = statistics.estimate(values)
  assert found.mean == pytest.approx(values.mean())
  assert found.item_stderr == pytest.approx(
    scipy.stats.sem(values.mean(axis=0))
  )
  assert found.seed_stderr == pytest.approx(
    scipy.stats.sem(values.mean(axis=1))
  )
  one = statistics.estimate(values[:1])
  # The closed form of a proportion's error.
  fraction = values[0].mean()
  expected = math.sqrt(fraction * (1 - fraction) / 49)
  assert one.item_stderr == pytest.approx(expected)
  assert one.seed_stderr is None
  assert statistics.standard_error(np.ones(1)) == 0.0


def test_a_paired_difference_is_that_of_a_paired_t_test():
  first, second = outcomes(1, 80, 0.4, seed=2), outcomes(1, 80, 0.6, seed=3)
  found = compared(first, second)
  test = scipy.stats.ttest_rel(second[0], first[0])
  assert found.mean == pytest.approx(second.mean() - first.mean())
  assert found.mean / found.item_stderr == pytest.approx(test.statistic)
  assert found.seed_stderr is None and found.over_both is None
  changes = second[0] - first[0]
  assert found.better == (changes == 1).sum()
  assert found.worse == (changes == -1).sum()


def test_the_interval_over_items_is_scipy_s():
  first, second = outcomes(2, 60, 0.3, seed=4), outcomes(1, 60, 0.5, seed=5)
  found = compared(first, second, confidence=0.9)
  expected = scipy.stats.bootstrap(
    (second.mean(axis=0) - first.mean(axis=0),),
    np.mean,
    n_resamples=RESAMPLES,
    confidence_level=0.9,
    method="percentile",
    rng=np.random.default_rng(6),
  ).confidence_interval
  assert found.over_items == pytest.approx(
    (expected.low, expected.high), abs=9e-3
  )


def test_few_items_have_the_intervals_of_all_their_resamples():
  changes = [0.0, 1.0, 1.0]
  means = sorted(
    sum(drawn) / 3 for drawn in itertools.product(changes, repeat=3)
  )
  # Of 27 resamples, 1 has mean 0 and 8 have mean 1.
  assert (means.count(0.0), means.count(1.0)) == (1, 8)
  assert compared([[0, 0, 0]], [changes], 0.95).over_items == (0.0, 1.0)
  narrow = compared([[0, 0, 0]], [changes], 0.3).over_items
  assert narrow == pytest.approx((1 / 3 * 2, 1 / 3 * 2))


def test_pairing_cancels_what_both_find_hard():
  hard = outcomes(1, 200, 0.5, seed=7)
  second = hard.copy()
  second[0, :10] = 1.0
  found = compared(hard, second)
  apart = math.hypot(
    statistics.estimate(hard).item_stderr,
    statistics.estimate(second).item_stderr,
  )
  assert found.item_stderr < apart / 3
  assert found.worse == 0


def test_equal_models_do_not_differ():
  values = outcomes(2, 30, 0.5, seed=8)
  found = compared(values[:1], values[:1])
  assert (found.mean, found.item_stderr, found.over_items) == (0, 0, (0, 0))


def test_the_interval_over_seeds_has_their_variance():
  """If items do not differ, only the variance over seeds remains."""
  first = np.repeat([[0.1], [0.2], [0.6]], 40, axis=1)
  second = np.repeat([[0.5], [0.9]], 40, axis=1)
  found = compared(first, second, confidence=0.68)
  error = math.hypot(
    scipy.stats.sem([0.1, 0.2, 0.6]), scipy.stats.sem([0.5, 0.9])
  )
  assert found.seed_stderr == pytest.approx(error)
  assert found.item_stderr == 0 and found.over_items == pytest.approx(
    (0.4, 0.4)
  )
  rng = np.random.default_rng(9)
  effects = statistics._seed_effects(second, RESAMPLES, rng)
  assert effects.std() == pytest.approx(scipy.stats.sem([0.5, 0.9]), rel=0.02)
  low, high = present(found.over_both)
  assert low < found.mean - 0.5 * error and high > found.mean + 0.5 * error


def test_intervals_hold_the_truth_as_often_as_they_say():
  rng = np.random.default_rng(10)
  held = {"items": 0, "both": 0}
  rounds, truth = 300, 0.1
  for _ in range(rounds):
    item = rng.normal(0, 0.3, 40)
    change = truth + rng.normal(0, 0.2, 40)
    first = item + rng.normal(0, 0.1, (6, 1))
    second = item + change + rng.normal(0, 0.1, (6, 1))
    found = compared(first, second, resamples=400)
    held["items"] += found.over_items[0] <= truth <= found.over_items[1]
    low, high = present(found.over_both)
    held["both"] += low <= truth <= high
  # The interval over items ignores the seeds' error, so it is too narrow.
  assert 0.9 <= held["both"] / rounds <= 0.98
  assert held["items"] < held["both"] - 0.1 * rounds


def test_other_items_are_refused():
  with pytest.raises(ValueError, match="2 and 3 items: expected the same ones"):
    compared(np.zeros((1, 2)), np.zeros((1, 3)))
