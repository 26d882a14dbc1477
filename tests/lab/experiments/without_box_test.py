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
  "before": ("15</think>\n<answer></answer>", False),
  "last": ("</think>\n<answer>14 \\boxed{15}", True),
  "cut off": ("</think>\n<answer>\\boxed{1", False),
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


def test_the_difference_is_paired_by_item(tmp_path, monkeypatch, capsys):
  runs = tmp_path / "some" / "runs"
  (runs / "answers").mkdir(parents=True)
  questions = {"a": "Add: 12 - 30 =", "b": "Add: 1 + 2 ="}
  (runs / "items_told.json").write_text(json.dumps(questions))
  texts = {"start": (-18, 4), "ppo_0": (-18, 3), "ppo_1": (18, 3)}
  for name, found in texts.items():
    rows = [
      {"id": id_, "first": f"</think>\n<answer>{value}</answer>"}
      for id_, value in zip(questions, found, strict=True)
    ]
    packed.write(runs / "answers" / f"told_{name}.jsonl.gz", rows)
  monkeypatch.setattr(without_box, "_EXPERIMENTS", tmp_path)
  monkeypatch.setattr("sys.argv", ["x", "some", "told", "ppo_0", "ppo_1"])
  without_box.main()
  # By item: -0.5 and +1, so 0.25 with an error of 0.75.
  assert capsys.readouterr().out.splitlines() == [
    "start: 0.500",
    "ppo_0: 1.000",
    "ppo_1: 0.500",
    "+0.250 +- 0.750",
  ]
