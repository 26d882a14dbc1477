"""Tests selecting problems by their pass rate in a benchmark's records."""

import json

import pytest

from azr_jax.lab.data import select_problems
from azr_jax.systems.code_interpreter import measurement
from azr_jax.tasks.questions.question import Question


def record(question, correct):
  return json.dumps(
    {"question": question, "reference": {"answer": "1"}, "correct": correct}
  )


def test_problems_in_range_are_written_with_their_pass_rates(tmp_path):
  records = tmp_path / "problems.jsonl"
  grades = {"a": [0, 0, 0, 0], "b": [1, 0, 0, 0], "c": [1, 1, 0, 0], "d": [1]}
  records.write_text("\n".join(record(q, c) for q, c in grades.items()) + "\n")
  rated = select_problems.of_records([str(records)])
  assert [rate for _, rate in rated] == [0.0, 0.25, 0.5, 1.0]
  out = tmp_path / "new" / "hard.jsonl"
  counts = select_problems.select(rated, 0.25, 0.5, str(out))
  assert counts == {"problems": 4, "kept": 2}
  assert [json.loads(line) for line in out.read_text().splitlines()] == [
    {"question": "b", "answer": "1", "pass_rate": 0.25},
    {"question": "c", "answer": "1", "pass_rate": 0.5},
  ]


def test_rates_are_over_all_passes_as_those_of_potential(tmp_path):
  """The same files give the pass rates of `azr_jax.potential`."""
  passes = []
  for name, grades in (
    ("cold", {"a": [True], "b": [False]}),
    ("hot", {"a": [False] * 3, "b": [True] * 3}),
  ):
    lines = []
    for question, correct in grades.items():
      lines.append(
        json.dumps(json.loads(record(question, correct)) | {"id": question})
      )
    passes.append(tmp_path / f"{name}.jsonl")
    passes[-1].write_text("\n".join(lines) + "\n")
  rated = select_problems.of_records([str(path) for path in passes])
  assert [(p.question, rate) for p, rate in rated] == [("a", 0.25), ("b", 0.75)]
  asked = [Question(name, "gym/x", name, "1") for name in "ab"]
  assert [r.rate for r in measurement.rates(asked, passes)] == [0.25, 0.75]


@pytest.mark.parametrize(
  "line",
  [
    "not JSON",
    "{}",
    '{"question": "a", "reference": "1", "correct": [1]}',
    '{"question": "a", "reference": {"answer": "1"}, "correct": []}',
  ],
)
def test_a_line_that_is_no_record_is_named(tmp_path, line):
  records = tmp_path / "problems.jsonl"
  records.write_text(record("a", [1]) + "\n" + line + "\n")
  with pytest.raises(ValueError, match="problems.jsonl"):
    select_problems.of_records([str(records)])


def test_a_folder_that_is_no_run_is_refused(tmp_path):
  with pytest.raises(ValueError, match="expected the folder of a run"):
    select_problems.of_run(str(tmp_path))
