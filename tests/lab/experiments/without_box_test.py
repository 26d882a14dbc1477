"""Sums whose box may be missing."""

import json

from azr_jax.lab.experiments import packed
from experiments.habits import without_box

QUESTION = "State the answer to the problem: 12 + 7 - 4 ="
ANSWERS = {
  "boxed": ("</think>\n<answer>\\boxed{15}</answer>", True),
  "bare": ("</think>\n<answer>15</answer>", True),
  "wrong": ("</think>\n<answer>\\boxed{-15}</answer>", False),
  "steps": ("12+7=19 19-4=15", False),
  "empty": ("</think>\n<answer></answer>", False),
}


def test_a_sum_without_a_box_is_right(tmp_path):
  names = ANSWERS.keys()
  questions = dict.fromkeys(names, QUESTION)
  (tmp_path / "items_told.json").write_text(json.dumps(questions))
  rows = [{"id": name, "first": ANSWERS[name][0]} for name in names]
  (tmp_path / "answers").mkdir()
  packed.write(tmp_path / "answers" / "told_start.jsonl.gz", rows)
  found = without_box.right_sums(tmp_path, "told", "start")
  assert found == {name: right for name, (_, right) in ANSWERS.items()}
