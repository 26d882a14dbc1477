"""Valid return values of rewards, and failures for all others."""

import numpy as np
import pytest

from azr_jax import types
from azr_jax.functions.pool import CallResult
from azr_jax.systems import scores
from azr_jax.systems.scores import Score

NAN = float("nan")


@pytest.mark.parametrize(
  "value, expected",
  [
    (0.5, Score(0.5)),
    (True, Score(1.0)),
    (None, Score()),
    ({"reward": 2, "length": 7}, Score(2.0, {"length": 7.0})),
    ({"reward": None, "length": 7}, Score(None, {"length": 7.0})),
    ({"reward": 1, "note": None}, Score(1.0)),
    (
      {"reward": 0, "feedback": "It is 3.", "reference": "3"},
      Score(0.0, feedback="It is 3.", reference="3"),
    ),
    ({"reward": 1, "feedback": None}, Score(1.0)),
    (-(10**15), Score(-1e15)),
    ({"reward": 0, "nanoseconds": 10**30}, Score(0.0, {"nanoseconds": 1e30})),
  ],
)
def test_a_number_a_dictionary_or_nothing(value, expected):
  assert scores.of_one(CallResult(value)) == expected


@pytest.mark.parametrize(
  "value, failure, message",
  [
    ("good", "wrong_type", "reward is 'good' of type str: expected a number"),
    ([1.0, 2.0], "wrong_shape", "returned a list of 2: expected a number"),
    ({"score": 1}, "wrong_type", "returned ['score']: expected a number, or"),
    ({"reward": [1]}, "wrong_shape", "returned a list of 1"),
    ({"reward": 1, "x": "y"}, "wrong_type", "x is 'y' of type str"),
    (NAN, "not_finite", "reward is nan: expected a finite number"),
    ({"reward": 1, "x": float("inf")}, "not_finite", "x is inf"),
    ({"reward": None, "x": NAN}, "not_finite", "x is nan"),
    ({"reward": 0, "feedback": 3}, "wrong_type", "feedback is 3 of type int"),
    ({"reward": None, "x": "y"}, "wrong_type", "x is 'y' of type str"),
    (10**400, "too_large", "expected at most 1e+15 in size"),
    (-(10**400), "too_large", "reward is -1000"),
    (1.7e308, "too_large", "reward is 1.7e+308: expected at most 1e+15"),
    ({"reward": 1, "x": 10**400}, "too_large", "expected at most 3.4e+38"),
  ],
)
def test_anything_else_is_a_failure(value, failure, message):
  score = scores.of_one(CallResult(value))
  assert (score.value, score.failure) == (None, failure)
  assert message in score.message and "\n" not in score.message


def test_a_failed_call_keeps_its_kind_and_message():
  answer = CallResult(failure="raised", message="KeyError: 'x'")
  failed = Score(failure="raised", message="KeyError: 'x'")
  assert scores.of_one(answer) == failed
  assert scores.of_group(answer, 2) == [failed, failed]


@pytest.mark.parametrize(
  "value, expected",
  [
    ([1, {"reward": 2, "x": 3}], [Score(1.0), Score(2.0, {"x": 3.0})]),
    (
      {"reward": [1, 2], "x": [3, 4]},
      [Score(1.0, {"x": 3.0}), Score(2.0, {"x": 4.0})],
    ),
    ([None, 1.0], [Score(), Score(1.0)]),
  ],
)
def test_a_list_has_a_value_for_each_completion(value, expected):
  assert scores.of_group(CallResult(value), 2) == expected


@pytest.mark.parametrize(
  "value", [[1.0], [1.0, 2.0, 3.0], 1.0, "ab", {"reward": [1, 2], "x": [3]}]
)
def test_a_list_of_another_length_fails_for_all(value):
  found = scores.of_group(CallResult(value), 2)
  assert [score.failure for score in found] == ["wrong_shape"] * 2


def test_one_bad_value_of_a_list_costs_the_others_nothing():
  found = scores.of_group(CallResult([1.0, NAN]), 2)
  assert [score.failure for score in found] == ["", "not_finite"]


def test_rewards_are_weighted_and_failures_counted():
  failed = Score(failure="raised", message="KeyError: 'x'")
  graded = [
    [Score(1.0, {"length": 4.0}), Score(0.5)],
    [Score(0.0, {"length": 8.0}), failed],
    [Score(), failed],
  ]
  totals = [scores.total(one, [1.0, -2.0]) for one in graded]
  assert totals == [0.0, 0.0, 0.0]
  assert scores.metrics(graded, ["f", "g"], "custom") == {
    "reward/custom/f/mean": 0.5,
    "reward/custom/f/std": 0.5,
    "failed/f/fraction": 0.0,
    "metric/f/length": 6.0,
    "reward/custom/g/mean": 0.5,
    "reward/custom/g/std": 0.0,
    "failed/g/fraction": pytest.approx(2 / 3),
    "failed/g/raised": 2.0,
  }
  said = []
  scores.report(said.append, 7, graded, ["f", "g"])
  assert said == [
    "step 7: reward g failed (raised) for 2 of 3 responses: KeyError: 'x'"
  ]
  with pytest.raises(RuntimeError, match="step 7: .* g failed .* for 2 of 2"):
    scores.report(said.append, 7, graded[1:], ["f", "g"])


def test_a_mean_reward_has_its_error_over_prompts():
  ids = np.zeros(0, np.int32)
  response = types.Completion(ids, ids.astype("f4"), ids > 0, "stop", "")
  prompt = types.Prompt("", ())
  groups = [
    [types.Trajectory(prompt, response, reward, 0) for reward in rewards]
    for rewards in ([0, 1], [1, 1, 1], [0, 0])
  ]
  assert scores.mean_reward(groups, "custom") == {
    # Each prompt counts once: 1/2, 1 and 0, with variance 1/4.
    "custom/reward": 0.5,
    "custom/reward_stderr": pytest.approx((1 / 4 / 3) ** 0.5),
  }
  assert scores.mean_reward(groups[:1], "custom")["custom/reward_stderr"] == 0
