"""The table of scores in the layout of R1-CI's table 3."""

import json
import sys

import numpy as np
import pytest
from typed import present, stand_in

from azr_jax.evals import question_table, questions, registry
from azr_jax.evals.benchmark import Item
from azr_jax.tasks.chats import Chat
from azr_jax.tasks.questions import catalogue

# Table 3, Qwen2.5-14B: means of SymBench, BIG-Bench Hard and reasoning-gym, and
# the averages that the paper prints.
PUBLISHED = {
  "train": ((24.0, 77.7, 35.8), 40.8),
  "test": ((22.3, 80.4, 39.6), 44.1),
}


def test_averages_are_over_tasks_as_in_the_paper():
  tasks, correct = [], []
  for task in catalogue.tasks().values():
    collection = task.name.partition("/")[0]
    order = ("symbench", "bbh", "gym").index(collection)
    percent = PUBLISHED[task.split][0][order]
    for index in range(1000):
      tasks.append(task.name)
      correct.append([index < round(10 * percent)])
  found = question_table.means(tasks, np.array(correct))
  for split, (parts, average) in PUBLISHED.items():
    for collection, part in zip(("symbench", "bbh", "gym"), parts, strict=True):
      assert 100 * found[f"mean/{split}/{collection}"] == pytest.approx(part)
    # The paper rounds both the collections and the average to within 0.05.
    assert 100 * found[f"mean/{split}"] == pytest.approx(average, abs=0.1)
  assert found["tasks/train"] == 107 and found["tasks/test"] == 37
  assert found["tasks/test/gym"] == 23


def test_errors_are_over_questions_with_the_tasks_given():
  rates = {"gym/ab": [1, 0, 0, 1], "gym/acre": [1, 1, 1, 0, 1]}
  tasks = [name for name, values in rates.items() for _ in values]
  correct = np.array([[v] for values in rates.values() for v in values], bool)
  found = question_table.means(
    [*tasks, "mine/x"], np.append(correct, [[True]], 0)
  )
  assert found["mean/train"] == pytest.approx((0.5 + 0.8) / 2)
  # The variances of the two means are 1/3 / 4 and 0.2 / 5.
  error = np.sqrt(1 / 12 + 0.04) / 2
  assert found["mean/train_stderr"] == pytest.approx(error)
  assert found["tasks/train/gym"] == 2 and "mean/test" not in found


def scores_of(suffix, value):
  name = f"questions{suffix}"
  return {
    f"{name}/mean/train/gym": value,
    f"{name}/mean/train/gym_stderr": 0.01,
    f"{name}/tasks/train/gym": 61.0,
    f"{name}/mean/train": value,
    f"{name}/mean/train_stderr": 0.01,
    f"{name}/tasks/train": 61.0,
    f"gpqa{suffix}/pass@1/unbiased": 0.25,
    f"gpqa{suffix}/pass@1/unbiased_stderr": 0.03,
  }


def test_rows_are_agents_and_incomplete_columns_say_so(
  tmp_path, monkeypatch, capsys
):
  scores = scores_of("_text", 0.5) | scores_of("_code_agent", 0.75)
  agents = ("code_agent", "text")
  rows = question_table.of_agents(scores, agents)
  expected = [
    "| answers by | train Rea.G. (61) | avg. train (61 of 107) | GPQA |",
    "| --- | --- | --- | --- |",
    "| All Text | 50.0 +- 1.0 | 50.0 +- 1.0 | 25.0 +- 3.0 |",
    "| Code Agent | 75.0 +- 1.0 | 75.0 +- 1.0 | 25.0 +- 3.0 |",
  ]
  assert question_table.show(rows).splitlines() == expected
  assert question_table.show({}) == ""
  results = {"scores": scores, "config": {"evaluate": {"agents": agents}}}
  (tmp_path / "results.json").write_text(json.dumps(results))
  monkeypatch.setattr(sys, "argv", ["x", str(tmp_path)])
  question_table.main()
  shown = capsys.readouterr().out.splitlines()
  assert shown[0] == expected[0]
  assert shown[2] == expected[2].replace("All", f"{tmp_path}: All")


@pytest.mark.parametrize(
  "name, reference, response, is_correct",
  [
    ("gpqa", {"answer": "B", "letters": "ABCD"}, "so <<<B>>>", True),
    ("gpqa", {"answer": "B", "letters": "ABCD"}, "so <<<(B) two>>>", True),
    ("gpqa", {"answer": "B", "letters": "ABCD"}, "so (B) two", False),
    ("gpqa", {"answer": "B", "letters": "ABCD"}, "B <<<A>>>", False),
    ("aime24", {"answer": "073"}, "204 <<<73>>>", True),
    ("aime24", {"answer": "073"}, "73 <<<204>>>", False),
    ("aime24", {"answer": "073"}, "we try n = 73", False),
    ("bbh", {"answer": "(C)"}, "<<<(C)>>>", True),
    ("bbh", {"answer": "a b"}, "<<<a b>>>", True),
  ],
)
def test_agents_answer_other_benchmarks_between_marks(
  executor, name, reference, response, is_correct
):
  benchmark = questions.answered_by(registry.BENCHMARKS[name], "text")
  item = Item("0", "How many?", reference)
  grade = benchmark.grade(executor, item, response)
  assert grade.result().correct == is_correct
  written = stand_in(Chat, prompt=lambda text: f"[{text}]")
  prompt = present(benchmark.prompt)(item, "full", written)
  assert "How many?" in prompt and "<<<" in prompt and "python" not in prompt
  chat = present(benchmark.prompt)(item, "chat", written)
  assert chat.startswith("[") and chat.endswith("]")


def test_scores_of_several_agents_have_names_of_their_own():
  both = ("text", "code_agent")
  for agents, name in (
    ((), "aime24"),
    (("text",), "aime24"),
    (both, "aime24_text"),
  ):
    found = questions.answered_by(registry.BENCHMARKS["aime24"], "text", agents)
    assert found.name == name
  with pytest.raises(ValueError, match="benchmark 'humaneval', because agents"):
    questions.answered_by(registry.BENCHMARKS["humaneval"], "text", both)
