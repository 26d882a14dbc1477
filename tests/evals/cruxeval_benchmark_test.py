"""CRUXEval and LiveCodeBench's execution scenario, on excerpts."""

import pytest
from excerpts import FIXTURES

from azr_jax.evals import cruxeval
from azr_jax.tasks import records

CRUXEVAL = FIXTURES.parents[1] / "grading/fixtures/cruxeval_40.jsonl"


@pytest.mark.parametrize(
  "template",
  [
    "so \\boxed{{{0}}}",
    "```output\n{0}\n```",
    "The answer is: {0}",
    "long\n{0}",
    "<think>1</think><answer>{0}</answer>",
    "\\boxed{{f(1) == {0}}}",
  ],
)
def test_references_of_cruxeval_are_found_in_responses(executor, template):
  raw = list(records.read(str(CRUXEVAL)))[:12]
  for row, item in zip(raw, cruxeval.read_outputs(raw), strict=True):
    if "\n" in row["output"] and "{0}" in template[-3:]:
      continue
    response = template.format(row["output"])
    grade = cruxeval.grade_output(executor, item, response).result(60)
    assert grade.correct, (row["output"], grade)
    wrong = cruxeval.grade_output(executor, item, template.format("'other'"))
    assert not wrong.result(60).correct


def test_arguments_of_cruxeval_are_run(executor):
  raw = list(records.read(str(CRUXEVAL)))[:12]
  for row, item in zip(raw, cruxeval.read_inputs(raw), strict=True):
    for response in (
      f"```input\n{row['input']}\n```",
      f"\\boxed{{f({row['input']})}}",
    ):
      grade = cruxeval.grade_input(executor, item, response).result(60)
      assert grade.correct, (row["input"], grade)
  assert not cruxeval.grade_input(executor, item, "none").result(60).correct


@pytest.mark.parametrize(
  "output, response",
  [
    ("{'a': 1}", "The answer is `{'a': 1}`."),
    ("{'a': 1}", "\\boxed{\\{'a': 1\\}}"),
    ("(1, 2)", "So:\n```python\n(1, 2)\n```"),
    ("(1, 2)", "So:\n```\n(1, 2)\n```"),
    ("(3, 3)", "\\boxed{assert f(1) == (3, 3)}"),
    ("'a_b'", "\\boxed{'a\\_b'}"),
  ],
)
def test_values_are_found_in_other_notations(executor, output, response):
  (item,) = cruxeval.read_outputs(
    [{"id": "1", "code": "", "input": "1", "output": output}]
  )
  assert cruxeval.grade_output(executor, item, response).result(60).correct


@pytest.mark.parametrize(
  "answer, correct",
  [
    ("3", True),
    ("f(3) == (3, 3)", True),
    ("assert f(x=3) == (3, 3)", True),
    ("f(4) == (4, 4)", False),
    ("(3, 3)", False),
  ],
)
def test_arguments_are_found_in_an_assertion(executor, answer, correct):
  code = "def f(x):\n  return x, x"
  (item,) = cruxeval.read_inputs(
    [{"id": "1", "code": code, "input": "3", "output": "(3, 3)"}]
  )
  response = f"\\boxed{{{answer}}}"
  grade = cruxeval.grade_input(executor, item, response).result(60)
  assert grade.correct == correct, grade


# A program without arguments, like samples 135 and 344 of CRUXEval.
WITHOUT = {
  "id": "1",
  "code": "def f():\n  return [1]",
  "input": "",
  "output": "[1]",
}
WITH_FUNCTION = {
  "id": "2",
  "code": "def f(values, act):\n  act(values)\n  return values",
  "input": "[2, 3, 1], (lambda x: x.reverse())",
  "output": "[1, 3, 2]",
}


@pytest.mark.parametrize(
  "record, response, correct",
  [
    (WITHOUT, "```input\n\n```", True),
    (WITHOUT, "```input\n```", True),
    (WITHOUT, "\\boxed{f()}", True),
    (WITHOUT, "\\boxed{}", True),
    (WITHOUT, "\\boxed{f(1)}", False),
    (WITHOUT, "", False),
    (WITH_FUNCTION, "```input\n[2, 3, 1], (lambda x: x.reverse())\n```", True),
    (WITH_FUNCTION, "\\boxed{f([1, 2, 3], lambda x: x.sort(key=str))}", False),
    (
      WITH_FUNCTION,
      "```input\n[1] + [2, 3], lambda v: v.insert(1, v.pop())\n```",
      True,
    ),
    (WITH_FUNCTION, "```input\n[2, 3, 1], values.reverse\n```", False),
    (WITH_FUNCTION, "```input\n[2, 3, 1], lambda x: f\n```", False),
  ],
)
def test_calls_without_arguments_and_with_functions(
  executor, record, response, correct
):
  (item,) = cruxeval.read_inputs([record])
  grade = cruxeval.grade_input(executor, item, response).result(60)
  assert grade.correct is correct, grade
  (item,) = cruxeval.read_outputs([record])
  response = f"```output\n{record['output']}\n```"
  assert cruxeval.grade_output(executor, item, response).result(60).correct


@pytest.mark.parametrize(
  "answer, correct",
  [("[0] * 3", True), ("[0] * 2", False), ("[f(1)[0]] * 3", False)],
)
def test_answers_may_be_expressions(executor, answer, correct):
  record = {"id": "1", "code": "def f(x):\n  return x", "output": "[0, 0, 0]"}
  record["input"] = record["output"]
  response = f"So it is {answer[0]}.\n```output\n{answer}\n```"
  (item,) = cruxeval.read_outputs([record])
  assert cruxeval.grade_output(executor, item, response).result(60).correct is (
    correct
  )
  (item,) = cruxeval.read_inputs([record])
  response = response.replace("output", "input")
  assert cruxeval.grade_input(executor, item, response).result(60).correct is (
    correct
  )


def test_livecodebench_execution_compares_values(executor):
  (item,) = cruxeval.read_livecodebench(
    [{"code": "def f(): ...", "input": "f()", "output": "[1, 2]"}]
  )
  for response, correct in (
    ("\\boxed{[1, 2]}", True),
    ("\\boxed{(1, 2)}", False),
  ):
    grade = cruxeval.grade_output(executor, item, response).result(60)
    assert grade.correct == correct
