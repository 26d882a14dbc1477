"""Repetition, reflection and truncation against naive definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax import types
from azr_jax.systems import text_metrics


def plain_repeat_score(text):
  n = len(text)
  if n <= 1:
    return 0.0
  suffixes = sorted(text[i:] for i in range(n))
  total = 0
  for first, second in zip(suffixes, suffixes[1:], strict=False):
    length = 0
    while length < len(first) and first[length] == second[length]:
      length += 1
    total += length
  return 2 * total / (n * (n + 1))


# Scores from the published code.
@pytest.mark.parametrize(
  "text, score",
  [("a" * 100, 0.980), ("ab" * 50, 0.961), ("", 0), ("a", 0)],
)
def test_known_repeat_scores(text, score):
  assert text_metrics.repeat_score(text) == pytest.approx(score, abs=1e-3)


@given(st.text(alphabet="ab é\U0001f600", max_size=60))
def test_repeat_score_equals_its_definition(text):
  score = text_metrics.repeat_score(text)
  assert score == pytest.approx(plain_repeat_score(text), abs=1e-9)


@pytest.mark.parametrize(
  "ids, onset",
  [
    ([1, 2, 3] + [7] * 20, 4),
    ([1, 2, 3] + [7, 8] * 10, 5),
    (list(range(30)), None),
    ([5] * 10, None),
    (list(range(40)) + [1, 2, 3, 4, 5] * 4 + [9], None),
    ([], None),
  ],
)
def test_repetition_begins_after_the_first_round(ids, onset):
  assert text_metrics.repetition_onset(np.array(ids, np.int32)) == onset


def trajectory(text, length, correct, reason="stop"):
  ids = np.arange(length, dtype=np.int32)
  completion = types.Completion(
    ids, np.zeros(length, np.float32), np.ones(length, bool), reason, text
  )
  return types.Trajectory(
    types.Prompt("", ()),
    completion,
    float(correct),
    0,
    {"correct": float(correct), "formatted": float(correct)},
  )


def test_metrics_of_a_few_answers():
  metrics = text_metrics.metrics(
    [
      trajectory("wait, however, wait, x", 10, True),
      trajectory("plain", 4, True),
      trajectory("Wait, no", 6, False, "length"),
    ],
    "health",
    8,
  )
  assert metrics["health/truncated_fraction"] == pytest.approx(1 / 3)
  assert metrics["health/reflective_fraction"] == pytest.approx(1 / 3)
  assert metrics["health/reflections/wait"] == pytest.approx(2 / 3)
  assert metrics["health/reflections/however"] == pytest.approx(1 / 3)
  assert metrics["health/correct_tokens"] == 7
  assert metrics["health/correct_reflective_tokens"] == 10
  assert metrics["health/wrong_tokens"] == 6
  assert metrics["health/formatted_fraction"] == pytest.approx(2 / 3)
