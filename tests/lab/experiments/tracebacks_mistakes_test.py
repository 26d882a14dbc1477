"""By how much answers to sums are off."""

import json
import pathlib

import pytest

from azr_jax.lab.experiments import answers, packed
from experiments.tracebacks import mistakes

ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.parametrize(
  ("question", "answer", "digits"),
  [
    ("14 + 58", " 72", (True, True)),
    ("14 + 58", "72.\n", (True, True)),
    ("14 + 58", "71", (True, False)),
    ("14 + 58", "62", (False, True)),
    ("14 + 58", "172", (False, True)),
    ("14 + 58", "61", (False, False)),
    ("14 + 58", "-72", (False, False)),
    ("14 + 58", "-68", (False, False)),
    ("14 + 58", "82 or 72", (False, False)),
    ("14 + 58", "", (False, False)),
    ("514 + 158", "672", (True, True)),
    ("1 + 2", "3", (True, True)),
  ],
)
def test_digits_of_answers(question, answer, digits):
  assert mistakes.right_digits(question, answer) == digits


def test_kept_answers_of_an_arm_are_right_as_often_as_scored():
  runs = ROOT / "experiments" / "tracebacks" / "runs"
  pairs = answers.by_arm(runs, "new_sums")
  assert {*pairs} == {"start", "right", "traceback", "supervised"}
  for arm, kept in pairs.items():
    right = sum(all(mistakes.right_digits(*pair)) for pair in kept)
    records = sorted(runs.glob(f"{arm}_1*.json")) or [runs / f"{arm}.json"]
    scored = [
      json.loads(path.read_text("utf-8"))["scores"]["new_sums"]["correct"]
      for path in records
      if answers.path_of(runs, "new_sums", path.stem).exists()
    ]
    assert len(kept) == sum(map(len, scored))
    assert right == sum(one.count("1") for one in scored)


def test_scores_with_a_common_prefix_are_kept_apart(tmp_path):
  (tmp_path / "a_b_0.json").write_text("{}")
  (tmp_path / "items_hot.json").write_text('{"7": "1 + 1"}')
  for score, text in (("hot", "2"), ("hot_05", "3")):
    row = {"id": "7", "subset": "", "styles": ["number"], "first": text}
    path = answers.path_of(tmp_path, score, "a_b_0")
    path.parent.mkdir(exist_ok=True)
    packed.write(path, [row])
  assert answers.by_arm(tmp_path, "hot") == {"a_b": [("1 + 1", "2")]}
