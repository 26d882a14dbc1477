"""DAPO's eq. 13, and truncated responses that are dropped from the loss."""

import numpy as np
import pytest

from azr_jax import types
from azr_jax.config.settings import Invalid
from azr_jax.configs import azr
from azr_jax.learner import packing, shaping
from azr_jax.trainer import settings as train_settings


def trajectory(length, reward=1.0, finish_reason="stop", group=0):
  ids = np.ones(length, np.int32)
  done = types.Completion(
    ids,
    np.zeros(length, np.float32),
    np.ones(length, bool),
    finish_reason,
    "",
  )
  return types.Trajectory(types.Prompt("", (1,)), done, reward, group)


def shape(
  trajectories,
  longest,
  overlong_buffer=0,
  overlong_penalty=1.0,
  mask_truncated=False,
):
  return shaping.shape_rewards(
    trajectories,
    overlong_buffer=overlong_buffer,
    overlong_penalty=overlong_penalty,
    mask_truncated=mask_truncated,
    longest=longest,
  )


@pytest.mark.parametrize(
  "length, want",
  [
    # The paper's lengths: up to 16,384 cost nothing, and 20,480 is the maximum.
    (1, 0.0),
    (16384, 0.0),
    (16385, 1 / 4096),
    (17408, 0.25),
    (18432, 0.5),
    (20480, 1.0),
  ],
)
def test_the_last_tokens_cost_linearly(length, want):
  assert shaping.overlong_fraction_of(length, 20480, 4096) == want


def test_without_a_buffer_nothing_costs():
  assert shaping.overlong_fraction_of(20480, 20480, 0) == 0.0
  given = [trajectory(3), trajectory(9, finish_reason="length")]
  shaped, metrics = shape(given, 9)
  assert all(a is b for a, b in zip(shaped, given, strict=True))
  assert metrics == {}


def test_punished_rewards_and_their_metrics():
  given = [trajectory(n, reward=r) for n, r in ((4, 1.0), (8, 1.0), (10, -0.5))]
  shaped, metrics = shape(given, 10, overlong_buffer=4, overlong_penalty=0.5)
  assert [t.reward for t in shaped] == [1.0, 0.75, -1.0]
  assert all(t.in_loss for t in shaped)
  assert metrics == {
    "shaping/overlong_fraction": pytest.approx(2 / 3),
    "shaping/overlong_penalty": 0.25,
  }


def test_truncated_responses_keep_their_reward_and_leave_the_loss():
  given = [
    trajectory(2),
    trajectory(5, reward=0.0, finish_reason="length"),
    trajectory(3, finish_reason="turns"),
  ]
  shaped, metrics = shape(given, 5, mask_truncated=True)
  assert [t.in_loss for t in shaped] == [True, False, True]
  assert [t.reward for t in shaped] == [1.0, 0.0, 1.0]
  assert metrics == {"shaping/masked_fraction": pytest.approx(1 / 3)}
  assert shape([], 5, mask_truncated=True) == (
    [],
    {"shaping/masked_fraction": 0.0},
  )


@pytest.mark.parametrize("aggregation", packing.AGGREGATIONS)
def test_masked_responses_leave_every_denominator(aggregation):
  """The batch equals one of only the others, with their own advantages."""
  given = [
    trajectory(2, group="a"),
    trajectory(5, finish_reason="length", group="a"),
    trajectory(3, group="b"),
    trajectory(5, finish_reason="length", group="c"),
  ]
  shaped, _ = shape(given, 5, mask_truncated=True)

  def packed(trajectories, advantages):
    return packing.pack(
      packing.from_trajectories(trajectories, advantages),
      row_length=8,
      rows_multiple=1,
      aggregation=aggregation,
      regularizer_aggregation=aggregation,
    )

  batch = packed(shaped, [0.5, -2.0, 1.5, -3.0])
  alone = packed([given[0], given[2]], [0.5, 1.5])
  for name, array in vars(batch).items():
    np.testing.assert_array_equal(array, getattr(alone, name))


@pytest.mark.parametrize("aggregation", packing.AGGREGATIONS)
def test_a_step_may_have_no_sequence_to_train_on(aggregation):
  batch = packing.pack(
    [], row_length=8, rows_multiple=2, aggregation=aggregation
  )
  assert batch.tokens.shape == (2, 8)
  assert not any(np.any(array) for array in vars(batch).values())


def test_a_buffer_beyond_the_longest_response_is_refused():
  config = azr.get_config("tiny")
  config.shaping.overlong_buffer = config.rollout.max_tokens
  train_settings.read_train(config)
  config.shaping.overlong_buffer += 1
  with pytest.raises(Invalid, match="shaping.overlong_buffer"):
    train_settings.read_train(config)
