"""Metrics that all solvers share."""

import numpy as np
import pytest

from azr_jax import types
from azr_jax.grading.outcome import Outcome
from azr_jax.systems import collect


def trajectory(reward, metrics):
  ids = np.zeros(3, np.int32)
  completion = types.Completion(
    ids, np.zeros(3, np.float32), np.ones(3, bool), "stop", ""
  )
  return types.Trajectory(
    types.Prompt("", (0,)), completion, reward, 0, metrics
  )


@pytest.mark.parametrize(
  "correct, expected",
  [
    ([0, 1, 0, 0], 0.5),
    # An ungraded response is not correct, regardless of its reward.
    ([None, None, 0, 1], 0.5),
    ([None] * 4, None),
  ],
)
def test_only_graded_responses_are_correct(correct, expected):
  given = [
    trajectory(0.1, {} if one is None else {"correct": float(one)})
    for one in correct
  ]
  found = collect.solve_metrics(given, "own/solve", group_size=2)
  assert found.get("correct/own/solve/any") == expected
  assert ("correct/own/solve/mean" in found) == (expected is not None)


@pytest.mark.parametrize(
  ("outcome", "is_formatted", "said", "expected"),
  [
    (Outcome.CORRECT, True, "", ""),
    (Outcome.CORRECT, False, "", "does not have the required format."),
    (Outcome.INCORRECT, True, "It gives 3.", "It gives 3."),
    (Outcome.INCORRECT, False, "It gives 3.", "required format. It gives 3."),
    (Outcome.INCORRECT, True, "", "The final answer is wrong"),
    (Outcome.LOST, True, "It gives 3.", ""),
  ],
)
def test_a_teacher_reads_why_a_response_loses(
  outcome, is_formatted, said, expected
):
  found = collect.feedback(outcome, is_formatted, said)
  assert expected in found
  assert bool(found) == bool(expected)


def test_groups_equal_up_to_rounding_are_counted_as_equal():
  given = [trajectory(one, {}) for one in (0.1 + 0.2, 0.3, 0, 1)]
  found = collect.solve_metrics(given, "own/solve", group_size=2)
  assert found["groups/own/equal_fraction"] == 0.5
