"""Styles and coverage of sums of three to seven numbers."""

import itertools
import json
import pathlib

import numpy as np
import pytest

from azr_jax.lab.experiments import answers, packed
from azr_jax.tasks.mathematics import prompts
from experiments.longer_sums import coverage, styles

QUESTION = "State the answer to the problem: 92 - 23 + 46 - 21 ="
PROMPT = prompts.solve_prompt(QUESTION, "compact")
STEPS = "92-23=69 69+46=115 115-21=94"


def answer(steps, box):
  return f"{steps}</think>\n<answer>\\boxed{{{box}}}</answer>"


@pytest.mark.parametrize(
  ("steps", "style"),
  [
    (STEPS, "own numbers"),
    (STEPS.replace("=94", "=93"), "own numbers"),
    (STEPS.replace("-21", "-22"), "other numbers"),
    (STEPS.replace(" 115-", " 116-"), "other numbers"),
    ("92-23=69 69+46=115", "fewer"),
    (f"{STEPS} 94-1=93", "more"),
    ("", "fewer"),
  ],
)
def test_a_style_is_the_numbers_that_are_added(steps, style):
  assert styles.style(answer(steps, 94), QUESTION) == style


def test_rewards_of_lengths_count_right_sums_of_that_length():
  rewards = (styles.right_of_four, styles.right_of_five, styles.right_of_six)
  right, wrong = answer(STEPS, 94), answer(STEPS, 95)
  assert [r(right, PROMPT, "94") for r in rewards] == [1, 0, 0]
  assert [r(wrong, PROMPT, "94") for r in rewards] == [0, 0, 0]


def _keep(folder, name, correct, kept):
  record = {"scores": {"six": {"correct": correct}}}
  (folder / f"{name}.json").write_text(json.dumps(record))
  rows = [
    {"id": str(i), "subset": "", "styles": one, "first": ""}
    for i, one in enumerate(kept)
  ]
  path = answers.path_of(folder, "six", name)
  path.parent.mkdir(exist_ok=True)
  packed.write(path, rows)


def test_a_right_guess_is_not_worked(tmp_path: pathlib.Path):
  own, other = styles.OWN, "fewer"
  _keep(tmp_path, "start", ["110", "001"], [[own, other, own], [own] * 3])
  found = coverage.worked(tmp_path, "six", "start")
  np.testing.assert_array_equal(found, [[1, 0, 0], [0, 0, 1]])


def test_the_interval_is_that_of_all_resamples():
  # Two items and two runs have 16 resamples, all equally likely.
  start = np.array([10.0, 30.0])
  runs = np.array([[20.0, 60.0], [40.0, 80.0]])
  pairs = list(itertools.product(range(2), repeat=2))
  means = [
    np.mean([runs[r, i] - start[i] for r in chosen for i in items])
    for chosen in pairs
    for items in pairs
  ]
  assert coverage.interval(start, runs) == pytest.approx(
    (min(means), max(means))
  )
