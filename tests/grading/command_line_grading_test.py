import json

import pytest

from azr_jax.grading import __main__ as command


def grade(executor, **case):
  line = json.dumps({"id": "x"} | case)
  return command.submit(executor, line).result(60)


@pytest.mark.parametrize(
  "case, correct",
  [
    ({"kind": "value", "gold": "1", "answer": "1"}, True),
    ({"kind": "value", "gold": "1", "answer": "1.0"}, False),
    (
      {
        "kind": "abduction",
        "code": "def f(x): return -x",
        "gold_output": "-1",
        "answer": "1",
      },
      True,
    ),
    (
      {
        "kind": "induction",
        "inputs": ["1"],
        "outputs": ["-1"],
        "answer": "def f(x): return -x",
      },
      True,
    ),
  ],
)
def test_kinds(executor, case, correct):
  verdict = grade(executor, **case)
  assert verdict["id"] == "x" and verdict["detail"] == case["kind"]
  assert verdict["correct"] is correct
  assert verdict["score"] == float(correct)


@pytest.mark.parametrize(
  "case, wanted",
  [
    ({"kind": "vlaue"}, "expected one of value, abduction, induction"),
    ({}, "kind is None"),
    ({"kind": []}, "kind is []"),
    ({"kind": "value", "gold": 1, "answer": "1"}, "gold is 1"),
    ({"kind": "induction", "inputs": "1", "outputs": []}, "inputs is '1'"),
    (
      {"kind": "induction", "inputs": ["1"], "outputs": [], "answer": ""},
      "1 inputs and 0 outputs",
    ),
    (
      {"kind": "induction", "inputs": [], "outputs": [], "answer": ""},
      "expected as many",
    ),
    ({"kind": "value", "gold": "no(", "answer": "1"}, "gold is 'no('"),
  ],
)
def test_a_bad_case_says_why(executor, case, wanted):
  verdict = grade(executor, **case)
  assert verdict["correct"] is False and verdict["score"] == 0.0
  assert wanted in verdict["detail"]


@pytest.mark.parametrize("line", ["", "no json", "[1]", "[" * 100_000])
def test_a_line_that_is_no_case(executor, line):
  verdict = command.submit(executor, line).result(60)
  assert verdict["correct"] is False and "bad case" in verdict["detail"]
