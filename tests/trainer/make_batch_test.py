"""Which trajectories are packed, and with which advantages."""

import dataclasses

import letters
import numpy as np
import pytest

from azr_jax import types
from azr_jax.config.settings import Invalid
from azr_jax.configs import azr
from azr_jax.models import presets
from azr_jax.trainer import decoders, learner_parts, settings


def trajectories(rewards):
  """One trajectory per (group, reward). The second token id is its number."""
  return [
    types.Trajectory(
      types.Prompt("", (100 + number,)),
      types.Completion(
        np.array([200 + number, 7, 7], np.int32),
        np.zeros(3, np.float32),
        np.ones(3, bool),
        "stop",
        "",
      ),
      reward,
      group,
    )
    for number, (group, reward) in enumerate(rewards)
  ]


@pytest.fixture(scope="module")
def batching():
  return batching_of({"drop_equal_groups": True, "estimator": "dr_grpo"})


def batching_of(learner, mask_truncated=False):
  config = azr.get_config("tiny")
  config.learner.update(learner)
  config.shaping.mask_truncated = mask_truncated
  c = settings.read_train(config).shared
  return learner_parts.build_batching(
    c,
    decoders.learner_mesh(c),
    presets.PRESETS["azr-tiny"],
    letters.Letters(),
  )


def pack(batching, given):
  trained, metrics = batching.drop_equal_groups(given)
  advantages = batching.estimate_advantages(trained)
  return batching.pack(trained, advantages, step=1), metrics


def packed(batching, rewards):
  batch, metrics = pack(batching, trajectories(rewards))
  first = batch.targets[np.asarray(batch.targets) >= 200] - 200
  return batch, sorted(first.tolist()), metrics


def test_groups_of_equal_reward_leave_batch_and_denominator(batching):
  rewards = [("a", 1.0), ("b", 0.5), ("a", 0.0), ("b", 0.5), ("c", 1.0)]
  batch, numbers, metrics = packed(batching, rewards)
  assert numbers == [0, 2]
  assert metrics == {"groups/dropped_fraction": pytest.approx(0.6)}
  weights = batch.loss_weights[batch.loss_mask > 0]
  # The mean over two responses of the mean over their three tokens.
  np.testing.assert_allclose(weights, np.full(6, 1 / 6), rtol=1e-6)
  advantages = set(batch.advantages[batch.loss_mask > 0].tolist())
  assert advantages == {0.5, -0.5}


def test_parts_of_a_group_are_averaged_by_themselves():
  batching = batching_of({"aggregation": "group_mean", "group_mean_size": 2})
  batch, *_ = packed(batching, [("a", 1.0), ("a", 0.0), ("a", 0.5)])
  weights = batch.loss_weights[batch.loss_mask > 0].tolist()
  # Three tokens a response: a part of six tokens, and one of three.
  want = [1 / 12] * 6 + [1 / 6] * 3
  np.testing.assert_allclose(sorted(weights), want, rtol=1e-6)
  with pytest.raises(Invalid, match="group_mean_size=2: expected 0 unless"):
    batching_of({"group_mean_size": 2})


def test_samples_that_are_not_finite_end_the_run(batching):
  given = trajectories([("a", 1.0), ("a", 0.0)])
  given[1].completion.logprobs[1] = np.nan
  with pytest.raises(RuntimeError, match="step 1: .* are not finite"):
    pack(batching, given)


def test_a_baseline_is_that_of_its_group(batching):
  rewards = [("a", 1.0), ("b", 0.5), ("a", 0.0), ("b", 0.0)]
  batch, numbers, _ = packed(batching, rewards)
  assert numbers == [0, 1, 2, 3]
  advantages = set(batch.advantages[batch.loss_mask > 0].tolist())
  assert advantages == {0.5, 0.25, -0.5, -0.25}


def test_nothing_is_dropped_where_all_groups_are_equal(batching):
  rewards = [("a", 1.0), ("a", 1.0), ("b", 0.0)]
  _, numbers, metrics = packed(batching, rewards)
  assert numbers == [0, 1, 2]
  assert metrics == {"groups/dropped_fraction": 0.0}


def test_cut_responses_do_not_move_the_advantages_of_others():
  normalizing = batching_of(
    {"estimator": "dr_grpo", "normalize_advantages": True}, mask_truncated=True
  )
  given = trajectories([("a", 1.0), ("a", 0.0), ("a", 0.0), ("a", 0.0)])
  ids = np.full(300, 7, np.int32)
  cut = dataclasses.replace(
    given[3].completion,
    token_ids=ids,
    logprobs=np.zeros(300, np.float32),
    loss_mask=np.ones(300, bool),
    finish_reason="length",
  )
  given[3] = dataclasses.replace(given[3], completion=cut)
  shaped, _ = normalizing.shape_rewards(given)
  batch, _ = pack(normalizing, shaped)
  trained = batch.advantages[batch.loss_mask > 0]
  # The rewards are 1, 0 and 0, with three tokens per response.
  want = [-(0.5**0.5)] * 6 + [2**0.5] * 3
  np.testing.assert_allclose(np.sort(trained), want, rtol=1e-5)


def test_a_critic_gets_rewards():
  made = batching_of({"estimator": "gae"})
  given = trajectories([("a", 1.0), ("a", 0.25)])
  assert made.estimate_advantages(given) is None
  batch, _ = pack(made, given)
  assert batch.advantages is None
  assert set(batch.rewards[batch.loss_mask > 0].tolist()) == {1.0, 0.25}


def test_rows_to_score_name_their_trajectories():
  made = batching_of({"estimator": "gae"})
  lengths = [3, 40, 100, 5, 90]
  given = [
    dataclasses.replace(
      one,
      completion=dataclasses.replace(
        one.completion,
        token_ids=np.full(length, 200 + number, np.int32),
        logprobs=np.zeros(length, np.float32),
        loss_mask=np.ones(length, bool),
      ),
    )
    for number, (one, length) in enumerate(
      zip(trajectories([("a", 0.0)] * 5), lengths, strict=True)
    )
  ]
  batch, rows = made.pack_to_score(given)
  assert sorted(sum(rows, [])) == list(range(5))
  flat = batch.targets.reshape(-1, batch.targets.shape[-1])
  segments = batch.segment_ids.reshape(flat.shape)
  for row, members in enumerate(rows):
    for segment, index in enumerate(members, start=1):
      inside = flat[row][segments[row] == segment]
      assert inside.tolist() == [200 + index] * lengths[index]
