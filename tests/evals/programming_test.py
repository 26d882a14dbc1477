"""HumanEval, MBPP and EvalPlus on excerpts: reading and grading."""

import pytest
from excerpts import rows, with_other_returns

from azr_jax.evals import answer_extraction, programming
from azr_jax.evals.benchmark import Item
from azr_jax.executor import Executor


@pytest.mark.parametrize("form", ["fence", "rest", "fenced rest"])
def test_canonical_humaneval_solutions_pass_and_others_fail(executor, form):
  raw = rows("humaneval_4.jsonl")
  for row, item in zip(raw, programming.read_humaneval(raw), strict=True):
    whole = row["prompt"] + row["canonical_solution"]
    response = {
      "fence": f"Here:\n```python\n{whole}\n```\nDone.",
      "rest": row["canonical_solution"] + "\nprint('and more')",
      "fenced rest": f"```python\n{row['canonical_solution']}\n```",
    }[form]
    grade = programming.grade_tests(executor, item, response).result(60)
    assert grade.correct, grade
    other = with_other_returns(whole, row["entry_point"])
    response = f"<think>..</think><answer>```python\n{other}\n```</answer>"
    assert (
      not programming.grade_tests(executor, item, response).result(60).correct
    )


def test_mbpp_solutions_pass_and_others_fail(executor):
  raw = rows("mbpp_4.jsonl")
  for row, item in zip(raw, programming.read_mbpp(raw), strict=True):
    entry = row["test_list"][0].split("assert ")[1].split("(")[0]
    fence = "```python\n{}\n```"
    response = fence.format(row["code"])
    assert programming.grade_tests(executor, item, response).result(60).correct
    response = fence.format(with_other_returns(row["code"], entry))
    assert (
      not programming.grade_tests(executor, item, response).result(60).correct
    )


PLUS = {
  "task_id": "x/0",
  "prompt": "def scale(x):\n",
  "entry_point": "scale",
  "canonical_solution": "  return [v / 3 for v in x]\n",
  "base_input": [[[1, 2]]],
  "plus_input": [[[0.1] * 3], [[]]],
  "atol": 1e-3,
}


@pytest.mark.parametrize(
  "body, correct",
  [
    ("return [v * 0.3333 for v in x]", True),
    ("return [v * 0.3 for v in x]", False),
    ("return tuple(v / 3 for v in x)", False),
    ("return [v / 3 for v in x] or None", False),
  ],
)
def test_plus_compares_with_the_canonical_solution(executor, body, correct):
  (item,) = programming.read_humaneval_plus([PLUS])
  response = f"```python\ndef scale(x):\n  {body}\n```"
  grade = programming.grade_plus(executor, item, response).result(60)
  assert grade.correct == correct, grade


def test_a_program_that_does_not_end_is_incorrect():
  (item,) = programming.read_humaneval_plus([PLUS])
  response = "```python\ndef scale(x):\n  while True: pass\n```"
  with Executor(workers=1, timeout_s=0.5, memory_mb=512) as executor:
    grade = programming.grade_plus(executor, item, response).result(60)
  assert not grade.correct
  assert "TimeoutError" in grade.detail


def plus_grade(executor, solution, code, *inputs):
  (item,) = programming.read_humaneval_plus(
    [
      PLUS
      | {
        "prompt": "def f(n):\n",
        "entry_point": "f",
        "canonical_solution": f"  return {solution}\n",
        "base_input": [[n] for n in inputs],
        "plus_input": [],
      }
    ]
  )
  response = f"```python\ndef f(n):\n  return {code}\n```"
  return programming.grade_plus(executor, item, response).result(60)


@pytest.mark.parametrize(
  "solution, code, other",
  [
    # A value above 64 KiB, with more digits than Python prints by default.
    ("list(range(n))", "[i / 1 for i in range(n)]", "list(range(1, n + 1))"),
    ("10**n", "pow(10, n)", "10**n + 1"),
  ],
)
def test_long_values_are_compared(executor, solution, code, other):
  assert plus_grade(executor, solution, code, 12_000, 3).correct
  grade = plus_grade(
    executor, solution, f"{other} if n > 9 else {code}", 12_000
  )
  assert not grade.correct and not grade.limit


def test_values_together_may_be_longer_than_a_report(executor):
  lengths = [60_000 + i for i in range(20)]
  grade = plus_grade(executor, "'a' * n", "n * 'a'", *lengths)
  assert (grade.correct, grade.detail) == (True, "20 of 20 inputs")
  code = "'a' * n if n < 60_019 else 1 // 0"
  grade = plus_grade(executor, "'a' * n", code, *lengths)
  assert grade.detail == "19 of 20 inputs ZeroDivisionError"
  assert not grade.limit


HUGGING_FACE_TEST = """
import numpy as np

def assertion(out, exp, atol):
  assert np.allclose(out, exp, atol)

def check(candidate):
  inputs = [[[1, 2]], [[]], [[float('inf')]]]
  results = [[1 / 3, 2 / 3], [], [float('inf')]]
  for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion(candidate(*inp), exp, 0)
"""


def test_tests_of_hugging_faces_layout_contain_the_outputs(executor):
  row = {k: v for k, v in PLUS.items() if not k.endswith("_input")}
  row["test"] = HUGGING_FACE_TEST.replace(
    "1 / 3, 2 / 3", "0.33333333, 0.66666667"
  )
  (item,) = programming.read_humaneval_plus([row])
  for body, correct in (
    ("[v/3 for v in x]", True),
    ("[v/2 for v in x]", False),
  ):
    response = f"```python\ndef scale(x):\n  return {body}\n```"
    grade = programming.grade_plus(executor, item, response).result(60)
    assert grade.correct == correct, grade
  mbpp = {
    "task_id": 2,
    "prompt": "Scale.",
    "test_list": ["assert scale([3]) == [1.0]"],
    "test": row["test"].replace("assertion(candidate", "assertion(scale"),
  }
  (item,) = programming.read_mbpp_plus([mbpp])
  response = "```python\ndef scale(x):\n  return [1.0]\n```"
  assert not programming.grade_plus(executor, item, response).result(60).correct
  with pytest.raises(ValueError, match="expected base_input"):
    programming.read_mbpp_plus([mbpp | {"test": "assert True"}])


def test_without_outputs_the_canonical_solution_is_run(executor):
  row = {k: v for k, v in PLUS.items() if not k.endswith("_input")}
  row["test"] = (
    "def ref_func(x):\n  return [v / 3 for v in x]\n"
    "def check(candidate):\n  inputs = [[[1, 2]], [[0.5]]]\n"
    "  for i, inp in enumerate(inputs):\n"
    "    assertion(candidate(*inp), ref_func(*inp), 0.01)\n"
  )
  (item,) = programming.read_humaneval_plus([row])
  assert item.reference["tolerance"] == 0.01
  for body, correct in (("0.333", True), ("0.3", False)):
    response = (
      f"```python\ndef scale(x):\n  return [v * {body} for v in x]\n```"
    )
    grade = programming.grade_plus(executor, item, response).result(60)
    assert grade.correct == correct, grade
  evalplus = {k: v for k, v in PLUS.items() if k != "prompt"}
  with pytest.raises(ValueError, match="expected Hugging Face's records"):
    programming.read_mbpp_plus([evalplus | {"prompt": "Scale."}])


@pytest.mark.parametrize(
  "after",
  [
    "```python\nprint(scale([3]))\n```",
    "It prints:\n```\n[1.0]\n```",
    "```bash\npython x.py\n```",
  ],
)
def test_an_example_after_the_program_is_not_the_program(after):
  program = "def scale(x):\n  return [v / 3 for v in x]\n"
  response = f"```python\n{program}```\nUse it so:\n{after}"
  assert answer_extraction.code(response, ["scale"]) == program
  mbpp = {
    "task_id": 1,
    "text": "Scale.",
    "test_list": ["assert scale([]) == []"],
  }
  (item,) = programming.read_mbpp([mbpp])
  assert programming.program(item, response) == program


def test_a_record_of_another_layout_is_refused():
  with pytest.raises(KeyError):
    programming.read_humaneval([{"task_id": "1"}])
  assert Item("a", "b", {}).subset == ""
