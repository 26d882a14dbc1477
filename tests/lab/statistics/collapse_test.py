"""Tests verdicts from held-out scores and the diversity of proposals."""

import dataclasses
import pathlib

import pytest
from typed import present

from azr_jax.lab.statistics import collapse
from azr_jax.report import page, reading
from azr_jax.report.scores import Benchmarks

SCORE = "evaluation/programs_heldout/pass@16/unbiased"
VARIED = [0.9, 0.88, 0.92, 0.9]
ALIKE = [0.5, 0.48, 0.52, 0.5]


def run_of(scores, diversity, error=0.02):
  """Returns a run of twelve steps, given scores and the last diversity."""
  steps = [*range(1, 13)]
  middle = [0.8] * 4
  values: dict[str, list[float | None]] = {
    SCORE: [scores.get(step) for step in steps],
    f"{SCORE}_stderr": [error if step in scores else None for step in steps],
    "program/azr/deduction/answer_diversity": [
      *VARIED, *middle, *diversity
    ],
    "program/azr/induction/answer_diversity": [None] * 12,
    "time/step": [1.0] * 12,
  }  # fmt: skip  # Each series is one line.
  return reading.LoggedRun(
    "run", pathlib.Path("run"), {}, steps, values, [], [], {},
    pathlib.Path("run_scores"), [], 0.0,
  )  # fmt: skip  # Most fields are empty.


@pytest.mark.parametrize(
  "scores, diversity, words",
  [
    ({1: 0.4, 6: 0.7, 12: 0.5}, ALIKE, collapse.COLLAPSED),
    ({1: 0.4, 6: 0.7, 12: 0.5}, VARIED, collapse.FORGETS),
    ({1: 0.4, 6: 0.7, 12: 0.7}, ALIKE, collapse.NARROWS),
    ({1: 0.4, 6: 0.7, 12: 0.69}, VARIED, collapse.STABLE),
  ],
)
def test_both_changes_give_the_reading(scores, diversity, words):
  shown = collapse.table([run_of(scores, diversity)])
  assert words in shown
  assert "step 6" in shown and "programs_heldout pass@16" in shown
  run = run_of(scores, diversity)
  assert words in page.build(
    [run], Benchmarks([run], {}), analyses=[collapse.section]
  )


def test_without_errors_nothing_is_said():
  unknown = run_of({1: 0.4, 6: 0.7, 12: 0.5}, ALIKE, error=None)
  assert collapse.UNKNOWN in collapse.table([unknown])
  # Three steps at each end are too few for an error.
  short = run_of({1: 0.4, 6: 0.7, 9: 0.5}, ALIKE)
  short = dataclasses.replace(
    short,
    steps=short.steps[:9],
    values={name: of[:9] for name, of in short.values.items()},
  )
  assert collapse.UNKNOWN in collapse.table([short])


def test_steps_without_a_type_that_is_known_later_do_not_count():
  other = "program/azr/abduction/answer_diversity"
  values: dict[str, list[float | None]] = {
    SCORE: [0.4] * 36,
    f"{SCORE}_stderr": [0.02] * 36,
    # Neither type changes. They have different levels and different steps.
    "program/azr/deduction/answer_diversity": [0.9, 0.88] * 18,
    other: [None] * 12 + [0.3, None] * 12,
    "time/step": [1.0] * 36,
  }
  run = run_of({1: 0.4, 12: 0.4}, VARIED)
  for of_other in (values[other], [0.3, None] * 18):
    changed = dataclasses.replace(
      run, steps=[*range(1, 37)], values=values | {other: of_other}
    )
    assert collapse.STABLE in collapse.table([changed])


def test_the_best_of_many_evaluations_must_be_left_by_more():
  # A loss of 2.2 errors has p = 0.028 with one other evaluation, 0.3 with 11.
  loss = 2.2 * 0.02 * 2**0.5
  few = run_of({1: 0.6 + loss, 12: 0.6}, VARIED)
  many = run_of({s: 0.6 for s in range(2, 13)} | {1: 0.6 + loss}, VARIED)
  assert present(collapse.of_best(few, SCORE)).is_worse
  assert not present(collapse.of_best(many, SCORE)).is_worse


def test_the_loss_that_would_not_be_seen_is_told():
  # The loss of one point plus 1.96 errors of a difference of two scores.
  run = run_of({1: 0.6, 12: 0.59}, VARIED)
  loss = present(collapse.of_best(run, SCORE))
  assert loss.largest == pytest.approx(0.0654, abs=1e-4)
  assert "a loss of 6.5 points may go undetected" in collapse.table([run])
  worse = run_of({1: 0.6, 12: 0.3}, VARIED)
  assert "may go undetected" not in collapse.table([worse])


@pytest.mark.parametrize("scores", [{}, {12: 0.5}])
def test_runs_without_two_scores_have_no_reading(scores):
  assert collapse.table([run_of(scores, ALIKE)]) == ""
