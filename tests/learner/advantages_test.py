"""Advantage estimators agree with the papers' formulas, written out."""

import functools
import itertools

import numpy as np
import pytest

from azr_jax.config.settings import Invalid
from azr_jax.learner import advantages
from azr_jax.learner.settings import LearnerSettings

REWARDS = [1.0, -0.5, 1.0, 0.2, 0.8, -1.0]
GROUPS = ["a", "a", "a", "b", "b", "b"]
LENGTHS = [5, 10, 5, 1, 1, 8]
# The same reward, summed in different orders.
SUMMED = [0.1 + 0.2, 0.3, 0.1 * 3]

BASELINES = sorted({*advantages.ESTIMATORS} - {"reward"})


def standardized(values, weights=None):
  mean = np.average(values, weights=weights)
  std = np.sqrt(np.average((values - mean) ** 2, weights=weights))
  return (values - mean) / std


def test_trr_plus_plus_standardizes_each_group():
  got = advantages.estimate("trr++", REWARDS, GROUPS, LENGTHS)
  want = np.concatenate(
    [standardized(np.array(REWARDS[:3])), standardized(np.array(REWARDS[3:]))]
  )
  np.testing.assert_allclose(got, want, atol=1e-5)


def test_by_token_weighs_with_lengths():
  got = advantages.estimate("trr++_by_token", REWARDS, GROUPS, LENGTHS)
  want = standardized(np.array(REWARDS[:3]), LENGTHS[:3])
  np.testing.assert_allclose(got[:3], want, atol=1e-5)


def test_reinforce_plus_plus_has_one_baseline():
  got = advantages.estimate("reinforce++", REWARDS, GROUPS, LENGTHS)
  np.testing.assert_allclose(got, standardized(np.array(REWARDS)), atol=1e-5)


def test_rloo_s_baseline_is_the_mean_of_the_others():
  got = advantages.estimate("rloo", REWARDS, GROUPS, LENGTHS)
  want = [1.0 - 0.25, -0.5 - 1.0, 1.0 - 0.25, 0.2 + 0.1, 0.8 + 0.4, -1.0 - 0.5]
  np.testing.assert_allclose(got, want, atol=1e-6)
  # This equals G / (G - 1) times the distance to the group mean.
  np.testing.assert_allclose(
    got[:3], 1.5 * (np.array(REWARDS[:3]) - 0.5), atol=1e-6
  )


@pytest.mark.parametrize("name", BASELINES)
def test_equal_rewards_and_single_members_have_zero_advantages(name):
  equal = advantages.estimate(name, [0.3] * 4, ["a", "b", "b", "b"], [1] * 4)
  np.testing.assert_array_equal(equal, 0.0)
  assert np.isfinite(advantages.estimate(name, [1.0], ["a"], [3])).all()
  summed = advantages.estimate(name, SUMMED, ["a"] * 3, [1] * 3, pass_k=2)
  np.testing.assert_array_equal(summed, 0.0)


@pytest.mark.parametrize("name", sorted(advantages.ESTIMATORS))
def test_no_trajectories_have_no_advantages(name):
  assert advantages.estimate(name, [], [], [], normalize=True).shape == (0,)


def test_order_of_trajectories_does_not_matter():
  order = [3, 0, 5, 1, 4, 2]
  got = advantages.estimate("trr++", REWARDS, GROUPS, LENGTHS)
  shuffled = advantages.estimate(
    "trr++",
    [REWARDS[i] for i in order],
    [GROUPS[i] for i in order],
    [LENGTHS[i] for i in order],
  )
  np.testing.assert_allclose(shuffled, got[order], atol=1e-6)


@pytest.mark.parametrize("name", BASELINES)
def test_groups_whose_names_read_alike_stay_apart(name):
  rewards, lengths = [1.0, 0.0, 0.5, 3.0, 1.0, 1.5], [1] * 6
  got = advantages.estimate(
    name, rewards, [1, 1, 1, "1", "1", "1"], lengths, pass_k=2
  )
  want = advantages.estimate(name, rewards, GROUPS, lengths, pass_k=2)
  assert np.any(got) and np.array_equal(got, want)
  assert advantages.groups_differ([1.0, 0.0], [1, "1"]) == [False, False]


def test_grpo_by_both_names():
  rewards, groups = [1.0, 0.0, 0.0, 5.0], ["a", "a", "a", "b"]
  lengths = [1, 2, 3, 4]
  mean_only = advantages.estimate("grpo_mean", rewards, groups, lengths)
  np.testing.assert_allclose(mean_only, [2 / 3, -1 / 3, -1 / 3, 0], atol=1e-6)
  scaled = advantages.estimate("grpo", rewards, groups, lengths)
  deviation = np.std([1.0, 0.0, 0.0])
  np.testing.assert_allclose(scaled, mean_only / deviation, atol=1e-5)


def test_grpo_divides_by_the_population_s_deviation_or_the_sample_s():
  rewards, groups = [1.0, 0.0, 0.0, 1.0, 0.0, 7.0], ["a"] * 5 + ["b"]
  lengths = [1] * 6
  got = advantages.estimate("grpo_sample_std", rewards, groups, lengths)
  # Mean 0.4; the squared distances add up to 1.2, and 1.2 / 4 = 0.3.
  want = [0.6 / 0.3**0.5, -0.4 / 0.3**0.5]
  np.testing.assert_allclose(got[:2], want, rtol=1e-5)
  population = advantages.estimate("grpo", rewards, groups, lengths)
  np.testing.assert_allclose(got[:5], population[:5] * 0.8**0.5, rtol=1e-5)
  assert got[5] == 0.0


def test_normalizing_weighs_tokens():
  got = advantages.estimate(
    "grpo_mean", [1.0, 0.0], ["a", "a"], [1, 3], normalize=True
  )
  tokens = np.array([0.5, -0.5, -0.5, -0.5])
  want = (tokens - tokens.mean()) / tokens.std()
  np.testing.assert_allclose(got, want[:2], atol=1e-6)


@pytest.mark.parametrize("name", BASELINES)
def test_normalizing_leaves_out_what_is_not_trained_on(name):
  """Truncated responses count in the baselines but not in the moments."""
  rewards, groups = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0], [0] * 4 + [1] * 4
  lengths = [500, 400, 500, 8000, 300, 500, 500, 8000]
  in_loss = [True, True, True, False] * 2
  estimate = functools.partial(
    advantages.estimate, name, rewards, groups, lengths, pass_k=2
  )
  plain = estimate()
  got = estimate(normalize=True, in_loss=in_loss)
  tokens = np.repeat(plain[in_loss], np.array(lengths)[in_loss])
  want = (plain[in_loss] - tokens.mean()) / tokens.std()
  np.testing.assert_allclose(got[in_loss], want, rtol=1e-5, atol=1e-6)
  none = estimate(normalize=True, in_loss=[False] * 8)
  np.testing.assert_array_equal(none, plain)


def best_of_all_sets(rewards, k):
  """Returns pass@k advantages by enumerating all sets of k responses."""
  sets = list(itertools.combinations(range(len(rewards)), k))
  best = np.array([max(rewards[i] for i in members) for members in sets])
  own = [
    np.mean([b for b, members in zip(best, sets, strict=True) if i in members])
    for i in range(len(rewards))
  ]
  return (np.array(own) - best.mean()) / best.std()


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_pass_at_k_is_the_mean_over_the_sets_of_a_response(k):
  rewards = [0.0, 1.0, 0.2, 0.2, -0.5, 0.0, 1.0]
  got = advantages.estimate(
    "pass@k", [*rewards, 1.0], ["a"] * 7 + ["b"], [1] * 8, pass_k=k
  )
  np.testing.assert_allclose(got[:7], best_of_all_sets(rewards, k), atol=1e-5)
  assert got[7] == 0


def test_pass_at_k_has_the_paper_s_formula_for_right_and_wrong():
  """Uses eight responses, three of them right, k = 4: R = 1 - 5 / 70."""
  rewards = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]
  got = advantages.estimate("pass@k", rewards, ["a"] * 8, [1] * 8, pass_k=4)
  mean = 1 - 5 / 70
  deviation = np.sqrt(mean * (1 - mean))
  right, wrong = (1 - mean) / deviation, (1 - mean - 4 / 35) / deviation
  want = np.where(np.array(rewards) > 0, right, wrong)
  np.testing.assert_allclose(got, want, atol=1e-5)
  # With k = G there is only one set, so no response is better than another.
  none = advantages.estimate("pass@k", rewards, ["a"] * 8, [1] * 8, pass_k=8)
  np.testing.assert_array_equal(none, 0)


def test_dr_grpo_is_the_distance_to_the_mean():
  got = advantages.estimate("dr_grpo", [1.0, 0.0, 0.0], ["a"] * 3, [1, 2, 3])
  np.testing.assert_allclose(got, [2 / 3, -1 / 3, -1 / 3], atol=1e-6)


def test_groups_of_equal_reward_are_found():
  groups = ["a", "b", "a", "b", "c"]
  found = advantages.groups_differ([1.0, 0.5, 0.0, 0.5, 1.0], groups)
  assert found == [True, False, True, False, False]
  assert advantages.groups_differ(SUMMED, [0] * 3) == [False] * 3
  assert advantages.groups_differ([0.3, 0.3 + 1e-8], [0, 0]) == [True, True]
  large = [1e12, 1e12 + 1, 1e12 + 1e4]
  assert advantages.groups_differ(large, [0, 0, 1]) == [False] * 3
  assert advantages.groups_differ(large, [0, 1, 0]) == [True, False, True]
  both = advantages.are_equal(np.array([SUMMED, [0.0, 0.0, 1.0]]))
  assert both.tolist() == [True, False]
  with pytest.raises(Invalid, match="drop_equal_groups=True.*'gae'"):
    LearnerSettings(drop_equal_groups=True, estimator="gae")
