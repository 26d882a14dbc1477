"""`python -m azr_jax.grading`: cases in, grades out."""

import codecs
import json
import subprocess
import sys

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
    *(
      (
        {
          "kind": "value",
          "gold": "[0, 0]",
          "answer": "[0] * 2",
          "expression": may_compute,
        },
        may_compute,
      )
      for may_compute in (True, False)
    ),
    (
      {
        "kind": "abduction",
        "code": "def f(): return 3",
        "gold_output": "3",
        "answer": "",
      },
      True,
    ),
    *(
      (
        {
          "kind": "abduction",
          "code": "def f(x, act): return act(x)",
          "gold_output": "3",
          "answer": "3, lambda x: x",
          "objects": objects,
        },
        objects,
      )
      for objects in (True, False)
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
  record = grade(executor, **case)
  assert record["id"] == "x" and record["detail"] == case["kind"]
  assert record["correct"] is correct
  wrong = "computed" if case["answer"] == "[0] * 2" else "incorrect"
  assert record["outcome"] == ("correct" if correct else wrong)
  assert record["score"] == float(correct)


@pytest.mark.parametrize(
  "case, wanted",
  [
    (
      {"kind": "vlaue"},
      "expected one of value, abduction, induction, unit_tests",
    ),
    ({}, "kind is None"),
    ({"kind": []}, "kind is []"),
    ({"kind": "value", "gold": 1, "answer": "1"}, "gold is 1"),
    (
      {
        "kind": "abduction",
        "code": "",
        "gold_output": "1",
        "answer": "1",
        "objects": "yes",
      },
      "objects is 'yes'; expected true or false",
    ),
    ({"kind": "induction", "inputs": "1", "outputs": []}, "inputs is '1'"),
    (
      {"kind": "induction", "inputs": ["1"], "outputs": [], "answer": ""},
      "1 inputs and 0 outputs",
    ),
    (
      {"kind": "induction", "inputs": [], "outputs": [], "answer": ""},
      "expected one output per input",
    ),
    ({"kind": "value", "gold": "no(", "answer": "1"}, "gold is 'no('"),
  ],
)
def test_a_bad_case_says_why(executor, case, wanted):
  record = grade(executor, **case)
  assert record["correct"] is False and record["score"] == 0.0
  assert wanted in record["detail"]


@pytest.mark.parametrize("line", ["", "no json", "[1]", "[" * 100_000])
def test_a_line_that_is_no_case(executor, line):
  record = command.submit(executor, line).result(60)
  assert record["correct"] is False and "bad case" in record["detail"]


def start(*flags):
  command_line = [
    sys.executable,
    "-m",
    "azr_jax.grading",
    "--workers=1",
    *flags,
  ]
  pipe = subprocess.PIPE
  return subprocess.Popen(command_line, stdin=pipe, stdout=pipe, stderr=pipe)


CASE = {"kind": "value", "gold": "1", "answer": "1"}


def test_every_line_has_a_grade_in_order():
  slow = {"kind": "unit_tests", "code": "while 1: 0", "tests": "assert f()"}
  cases = [{"id": 0} | slow, *({"id": i} | CASE for i in range(1, 5))]
  lines = [json.dumps(case).encode() for case in cases]
  lines[3:3] = [b"no json", b"", b"\xff"]
  with start("--timeout_s=0.5") as process:
    out, err = process.communicate(
      codecs.BOM_UTF8 + b"\n".join(lines), timeout=60
    )
  grades = [json.loads(line) for line in out.splitlines()]
  assert [grade["id"] for grade in grades] == [0, 1, 2, "", "", 3, 4]
  assert [grade["correct"] for grade in grades] == [0, 1, 1, 0, 0, 1, 1]
  assert process.returncode == 0
  assert err.decode().startswith("7 cases in ")


def test_grades_do_not_wait_for_the_last_case():
  line = json.dumps({"id": "first"} | CASE).encode() + b"\n"
  with start() as process:
    assert process.stdin and process.stdout and process.stderr
    try:
      process.stdin.write(line)
      process.stdin.flush()
      assert json.loads(process.stdout.readline())["id"] == "first"
      assert process.poll() is None
    finally:
      process.stdin.close()
      process.stdout.read()
      process.stderr.read()
  assert process.returncode == 0
