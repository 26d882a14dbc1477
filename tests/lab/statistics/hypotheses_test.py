"""Checks tests of differences against scipy, tables and simulation."""

import numpy as np
import pytest
import scipy
from typed import present

from azr_jax.lab.statistics import hypotheses


def of_seeds(stderr, df):
  return hypotheses.Mean(0.0, (hypotheses.Error(stderr, df),))


def test_one_item_is_the_t_test_over_seeds_and_one_seed_that_over_items():
  values = np.random.default_rng(0).normal(0.3, 1.0, 8)
  expected = scipy.stats.ttest_1samp(values, 0.0)
  for layout in (values[:, None], values[None, :]):
    mean = hypotheses.mean_of(layout)
    assert present(mean.error(0.95)).df == pytest.approx(7)
    assert mean.p_value() == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert mean.interval(0.95) == pytest.approx(tuple(interval))
  one_sided = scipy.stats.ttest_1samp(values, -0.5, alternative="greater")
  mean = hypotheses.mean_of(values[:, None])
  assert mean.p_value(-0.5, one_sided=True) == pytest.approx(one_sided.pvalue)


def test_a_difference_is_welch_s_test_over_seeds_and_paired_over_items():
  rng = np.random.default_rng(0)
  base, arm = rng.normal(0.0, 1.0, 5), rng.normal(0.5, 3.0, 8)
  mean = hypotheses.difference_of(base[:, None], arm[:, None])
  welch = scipy.stats.ttest_ind(arm, base, equal_var=False)
  assert present(mean.error(0.95)).df == pytest.approx(welch.df)
  assert mean.p_value() == pytest.approx(welch.pvalue)
  interval = welch.confidence_interval(0.95)
  assert mean.interval(0.95) == pytest.approx(tuple(interval))
  mean = hypotheses.difference_of(base[None], arm[None, :5])
  paired = scipy.stats.ttest_rel(arm[:5], base)
  assert mean.p_value() == pytest.approx(paired.pvalue)
  # One seed of the base says nothing of other seeds, so items alone remain.
  mean = hypotheses.difference_of(base[None], rng.normal(0, 1, (3, 5)))
  assert [error.df for error in mean.errors] == [4]


def test_the_error_of_a_difference_by_hand():
  """Two seeds and two items a model, every sum of squares by hand.

  Means over items are 0.5, 2.5 and 5.5, 9.5: V_seed is 2 and 8. Means over
  seeds differ by 2.5 and 9.5: V_item is 24.5. Residuals are +-0.5 and +-1:
  M_rest is 1 and 4. So the variance is 1 + 4 + 12.25 - 0.25 - 1 = 16, with
  16^2 / (1 + 16 + 12.25^2 + 0.25^2 + 1) degrees of freedom.
  """
  base, arm = np.array([[0.0, 1], [1, 4]]), np.array([[2.0, 9], [4, 15]])
  mean = hypotheses.difference_of(base, arm)
  both, welch = mean.errors
  assert mean.value == 6.0
  assert both.stderr == pytest.approx(4.0)
  assert both.df == pytest.approx(256 / 168.125)
  assert welch.stderr == pytest.approx(5**0.5)
  assert welch.df == pytest.approx(25 / 17)


@pytest.mark.parametrize("seed_sd, item_sd", [(0.0, 1.0), (1.0, 0.0), (0.5, 2)])
def test_intervals_over_seeds_and_items_hold_the_mean(seed_sd, item_sd):
  rng = np.random.default_rng(1)

  def model(num_seeds, scale=1.0):
    seeds = rng.normal(0, scale * seed_sd, (num_seeds, 1))
    items = rng.normal(0, item_sd, 40)
    return seeds + items + rng.normal(0, 1, (num_seeds, 40))

  held = np.zeros(2)
  for _ in range(400):
    common = rng.normal(0, 3, 40)  # Of the items, and the same for both models.
    means = (
      hypotheses.mean_of(model(5)),
      hypotheses.difference_of(common + model(5), common + model(4, 2.0)),
    )
    for index, mean in enumerate(means):
      low, high = present(mean.interval(0.9))
      held[index] += low < 0 < high
  # At most five standard errors below 0.9. Effects of 0 give more coverage.
  assert (held / 400 > 0.9 - 5 * (0.09 / 400) ** 0.5).all()


def test_few_seeds_that_agree_by_chance_are_seldom_taken_for_evidence():
  """At 0.05 / 6, the level of the first of six tests in Holm's method."""
  rng, level, count = np.random.default_rng(2), 0.05 / 6, 3000
  seen = 0
  for _ in range(count):
    values = rng.normal(0, 0.06, (3, 1)) + rng.normal(0, 0.45, (3, 100))
    seen += hypotheses.mean_of(values).p_value() < level
  # With the items' degrees of freedom it would be 3.4 times the level.
  assert seen / count < 2 * level


def test_without_repeats_there_is_no_error():
  mean = hypotheses.mean_of(np.ones((1, 1)))
  assert mean.interval(0.95) is None and mean.p_value() == 1.0
  assert hypotheses.smallest_detectable(mean, 0.05, 0.8) is None


def test_holm_s_example():
  """Four p-values at 0.05: 0.005 and 0.01 are rejected, 0.03 and 0.04 not."""
  adjusted = hypotheses.holm([0.01, 0.04, 0.03, 0.005])
  assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02])
  assert hypotheses.holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize(
  "count, power, expected",
  # Cohen's d of a paired two-sided t-test, by G*Power 3.1.
  [(5, 0.8, 1.682), (30, 0.8, 0.529), (10, 0.95, 1.285)],
)
def test_the_smallest_detectable_difference(count, power, expected):
  mean = of_seeds(2.0 / count**0.5, count - 1)
  found = hypotheses.smallest_detectable(mean, 0.05, power)
  assert found == pytest.approx(2.0 * expected, rel=5e-3)


def test_two_seeds_and_a_strict_family_have_a_smallest_difference():
  mean = of_seeds(1.0, 1)
  found = hypotheses.smallest_detectable(mean, 0.05 / 6, 0.8, one_sided=True)
  assert 30 < present(found) < 200
