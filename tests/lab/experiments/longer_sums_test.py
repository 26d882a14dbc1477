"""Styles, texts and coverage of sums of three to seven numbers."""

import collections
import json
import pathlib

import numpy as np
import pytest

from azr_jax.lab.experiments import answers, packed
from azr_jax.lab.statistics import hypotheses
from azr_jax.tasks.mathematics import prompts
from experiments.five_numbers import mistakes
from experiments.five_numbers import texts as five_texts
from experiments.longer_sums import coverage, styles, texts

QUESTION = "State the answer to the problem: 92 - 23 + 46 - 21 ="
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


@pytest.mark.parametrize(
  ("question", "total", "rewards"),
  [
    ("Add: 92 - 23 + 46 =", 115, [0, 0, 0]),
    ("Add: 92 - 23 + 46 - 21 =", 94, [1, 0, 0]),
    ("Add: 92 - 23 + 46 - 21 - 30 =", 64, [0, 1, 0]),
    ("Add: 92 - 23 + 46 - 21 - 30 + 80 =", 144, [0, 0, 1]),
  ],
)
def test_rewards_of_lengths_count_right_sums_of_that_length(
  question, total, rewards
):
  prompt = prompts.solve_prompt(question, "compact")
  for box, found in ((total, rewards), (total + 1, [0, 0, 0])):
    text = answer("", box)
    assert [
      reward(text, prompt, str(total))
      for reward in (
        styles.right_of_four,
        styles.right_of_five,
        styles.right_of_six,
      )
    ] == found


def test_sums_to_train_on_are_of_all_lengths_and_none_is_scored(
  tmp_path, monkeypatch
):
  # Otherwise the first sums of six numbers would be those that are scored.
  monkeypatch.setattr(five_texts, "SCORED_SEED", texts.SEED + 6)
  flags = ["texts", f"--out={tmp_path}", "--scale=0.02"]
  monkeypatch.setattr("sys.argv", flags)
  texts.main()
  lines = (tmp_path / "sums.jsonl").read_text().splitlines()
  found = [json.loads(line)["prompt"] for line in lines]
  lengths = [len(mistakes.terms(prompt)) for prompt in found]
  assert collections.Counter(lengths) == dict.fromkeys((3, 4, 5, 6), 120)
  assert len({*found}) == len(found)
  scored = {
    prompts.solve_prompt(question, "compact")
    for question in five_texts.scored([(6, 6)])
  }
  assert not scored & {*found}


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


def test_a_row_has_the_interval_of_the_claims():
  start = np.array([[0, 0], [1, 0], [0, 0], [1, 1]], bool)
  runs = np.array([np.roll(start, shift, 0) | start for shift in (1, 2)])
  gains = 100 * (runs.mean(2) - start.mean(1))
  ends = hypotheses.mean_of(gains).interval(0.95)
  assert ends is not None
  found = coverage.row(start, runs, 1)
  assert found == f"37.5 | 62.5 | +25.0 | {ends[0]:+.1f} to {ends[1]:+.1f}"


def test_without_any_answer_a_row_has_the_bound_of_the_binomial():
  none = np.zeros((100, 128), bool)
  found = coverage.row(none, none[None], 128)
  # Clopper and Pearson for 0 of 100 is 3.62 %.
  assert found == "none | none | 0.0 | at most 3.6 % of sums have one"
