"""Public benchmarks on excerpts: reading, finding answers, grading."""

import ast
import base64
import json
import pathlib
import pickle
import zlib

import pytest

from azr_jax.evals import (
  cruxeval,
  livecodebench,
  mathematics,
  multiple_choice,
  oracles,
  programming,
  prompt_formats,
  registry,
  table,
)
from azr_jax.evals.benchmark import Item
from azr_jax.executor import Executor
from azr_jax.tasks import records

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
CRUXEVAL = FIXTURES.parents[1] / "grading/fixtures/cruxeval_40.jsonl"


@pytest.fixture(name="executor", scope="module")
def make_executor():
  with Executor(workers=1, timeout_s=5.0, memory_mb=1024) as executor:
    yield executor


def rows(name):
  return list(records.read(str(FIXTURES / name)))


def with_other_returns(code, entry):
  """The same program, but `entry` gives something else."""
  tree = ast.parse(code)
  for node in ast.walk(tree):
    if isinstance(node, ast.FunctionDef) and node.name == entry:
      node.body.append(ast.parse("return 'other'").body[0])
      for part in ast.walk(node):
        if isinstance(part, ast.Return):
          part.value = ast.Constant("other")
  return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.parametrize("form", ["fence", "rest", "fenced rest"])
def test_canonical_humaneval_solutions_pass_and_others_fail(executor, form):
  raw = rows("humaneval_4.jsonl")
  for row, item in zip(raw, programming.read_humaneval(raw), strict=True):
    whole = row["prompt"] + row["canonical_solution"]
    reply = {
      "fence": f"Here:\n```python\n{whole}\n```\nDone.",
      "rest": row["canonical_solution"] + "\nprint('and more')",
      "fenced rest": f"```python\n{row['canonical_solution']}\n```",
    }[form]
    grade = programming.grade_tests(executor, item, reply).result(60)
    assert grade.correct, grade
    other = with_other_returns(whole, row["entry_point"])
    reply = f"<think>..</think><answer>```python\n{other}\n```</answer>"
    assert not programming.grade_tests(executor, item, reply).result(60).correct


def test_mbpp_solutions_pass_and_others_fail(executor):
  raw = rows("mbpp_4.jsonl")
  for row, item in zip(raw, programming.read_mbpp(raw), strict=True):
    entry = row["test_list"][0].split("assert ")[1].split("(")[0]
    fence = "```python\n{}\n```"
    reply = fence.format(row["code"])
    assert programming.grade_tests(executor, item, reply).result(60).correct
    reply = fence.format(with_other_returns(row["code"], entry))
    assert not programming.grade_tests(executor, item, reply).result(60).correct


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
    ("while True: pass", False),
  ],
)
def test_plus_compares_with_the_canonical_solution(executor, body, correct):
  (item,) = programming.read_humaneval_plus([PLUS])
  reply = f"```python\ndef scale(x):\n  {body}\n```"
  grade = programming.grade_plus(executor, item, reply).result(60)
  assert grade.correct == correct, grade


HUB_TEST = """
import numpy as np

def assertion(out, exp, atol):
  assert np.allclose(out, exp, atol)

def check(candidate):
  inputs = [[[1, 2]], [[]], [[float('inf')]]]
  results = [[1 / 3, 2 / 3], [], [float('inf')]]
  for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion(candidate(*inp), exp, 0)
"""


def test_the_hubs_layout_of_plus_has_the_outputs_in_its_tests(executor):
  row = {k: v for k, v in PLUS.items() if not k.endswith("_input")}
  row["test"] = HUB_TEST.replace("1 / 3, 2 / 3", "0.33333333, 0.66666667")
  (item,) = programming.read_humaneval_plus([row])
  for body, correct in (
    ("[v/3 for v in x]", True),
    ("[v/2 for v in x]", False),
  ):
    reply = f"```python\ndef scale(x):\n  return {body}\n```"
    grade = programming.grade_plus(executor, item, reply).result(60)
    assert grade.correct == correct, grade
  mbpp = {
    "task_id": 2,
    "prompt": "Scale.",
    "test_list": ["assert scale([3]) == [1.0]"],
    "test": row["test"].replace("assertion(candidate", "assertion(scale"),
  }
  (item,) = programming.read_mbpp_plus([mbpp])
  reply = "```python\ndef scale(x):\n  return [1.0]\n```"
  assert not programming.grade_plus(executor, item, reply).result(60).correct
  with pytest.raises(ValueError, match="expected base_input"):
    programming.read_mbpp_plus([mbpp | {"test": "assert True"}])


def test_the_hubs_rows_without_outputs_run_the_canonical_solution(executor):
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
    reply = f"```python\ndef scale(x):\n  return [v * {body} for v in x]\n```"
    grade = programming.grade_plus(executor, item, reply).result(60)
    assert grade.correct == correct, grade
  own = {k: v for k, v in PLUS.items() if k != "prompt"}
  with pytest.raises(ValueError, match="expected the hub's rows"):
    programming.read_mbpp_plus([own | {"prompt": "Scale."}])


@pytest.mark.parametrize(
  "entry, inputs, want, got, right",
  [
    ("f", "1", "[1.0]", "[1.0000005]", True),
    ("f", "1", "[1.0]", "[1.00001]", False),
    ("f", "1", "0.0", "1e-17", True),
    ("f", "1", "[1, 2]", "(1, 2)", False),
    ("similar_elements", "(1,)", "(4, 5)", "[5, 4, 4]", True),
    ("similar_elements", "(1,)", "(4, 5)", "[5]", False),
    ("Diff", "[1]", "[1]", "None", False),
    ("check_str", "'a'", "True", "'match'", True),
    ("check_str", "'a'", "False", "None", True),
    ("check_str", "'a'", "False", "True", False),
    ("find_zero", "[-6, 11, -6, 1]", "1.0", "2.0", True),
    ("find_zero", "[-6, 11, -6, 1]", "1.0", "2.5", False),
    ("find_zero", "[1, 2]", "-0.5", "'x'", False),
    ("digit_distance_nums", "123, 256", "99", "7", True),
    ("surface_Area", "3, 4", "33", "35", True),
    ("surface_Area", "3, 4", "33", "34", False),
  ],
)
def test_what_evalplus_accepts(entry, inputs, want, got, right):
  assert oracles.right(entry, inputs, want, got, 0.0) == right


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
  reply = f"```python\n{program}```\nUse it so:\n{after}"
  assert prompt_formats.code(reply, ["scale"]) == program
  mbpp = {
    "task_id": 1,
    "text": "Scale.",
    "test_list": ["assert scale([]) == []"],
  }
  (item,) = programming.read_mbpp([mbpp])
  assert programming.program(item, reply) == program


@pytest.mark.parametrize(
  "form",
  [
    "so \\boxed{{{0}}}",
    "```output\n{0}\n```",
    "The answer is: {0}",
    "long\n{0}",
    "<think>1</think><answer>{0}</answer>",
    "\\boxed{{f(1) == {0}}}",
  ],
)
def test_references_of_cruxeval_are_found_in_replies(executor, form):
  raw = list(records.read(str(CRUXEVAL)))[:12]
  for row, item in zip(raw, cruxeval.read_outputs(raw), strict=True):
    if "\n" in row["output"] and "{0}" in form[-3:]:
      continue
    reply = form.format(row["output"])
    grade = cruxeval.grade_output(executor, item, reply).result(60)
    assert grade.correct, (row["output"], grade)
    wrong = cruxeval.grade_output(executor, item, form.format("'other'"))
    assert not wrong.result(60).correct


def test_arguments_of_cruxeval_are_run(executor):
  raw = list(records.read(str(CRUXEVAL)))[:12]
  for row, item in zip(raw, cruxeval.read_inputs(raw), strict=True):
    for reply in (
      f"```input\n{row['input']}\n```",
      f"\\boxed{{f({row['input']})}}",
    ):
      grade = cruxeval.grade_input(executor, item, reply).result(60)
      assert grade.correct, (row["input"], grade)
  assert not cruxeval.grade_input(executor, item, "none").result(60).correct


@pytest.mark.parametrize(
  "output, reply",
  [
    ("{'a': 1}", "The answer is `{'a': 1}`."),
    ("{'a': 1}", "\\boxed{\\{'a': 1\\}}"),
    ("(1, 2)", "So:\n```python\n(1, 2)\n```"),
    ("(1, 2)", "So:\n```\n(1, 2)\n```"),
    ("(3, 3)", "\\boxed{assert f(1) == (3, 3)}"),
    ("'a_b'", "\\boxed{'a\\_b'}"),
  ],
)
def test_values_are_found_in_other_forms(executor, output, reply):
  (item,) = cruxeval.read_outputs(
    [{"id": "1", "code": "", "input": "1", "output": output}]
  )
  assert cruxeval.grade_output(executor, item, reply).result(60).correct


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
  reply = f"\\boxed{{{answer}}}"
  grade = cruxeval.grade_input(executor, item, reply).result(60)
  assert grade.correct == correct, grade


def test_livecodebench_execution_compares_values(executor):
  (item,) = cruxeval.read_livecodebench(
    [{"code": "def f(): ...", "input": "f()", "output": "[1, 2]"}]
  )
  for reply, correct in (("\\boxed{[1, 2]}", True), ("\\boxed{(1, 2)}", False)):
    grade = cruxeval.grade_output(executor, item, reply).result(60)
    assert grade.correct == correct


def contest(tests, **more):
  packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests[1:]))))
  (item,) = livecodebench.read(
    [
      {
        "question_id": "q",
        "question_content": "Add.",
        "public_test_cases": json.dumps(tests[:1]),
        "private_test_cases": packed.decode(),
        **more,
      }
    ]
  )
  assert len(item.reference["tests"]) == len(tests)
  return item


CONSOLE = contest(
  [
    {"input": "1 2\n", "output": "3\n"},
    {"input": "5 6\n", "output": "11"},
    {"input": "0.5 1\n", "output": "1.50"},
  ]
)


@pytest.mark.parametrize(
  "code, correct",
  [
    ("a, b = map(float, input().split())\nprint(a + b)", True),
    (
      "import sys\ndef main():\n  print(sum(map(float, sys.stdin.read()"
      ".split())))\nif __name__ == '__main__':\n  main()\n  exit()",
      True,
    ),
    (
      "import sys\ndata = sys.stdin.buffer.read().split()\n"
      "sys.stdout.buffer.write(b'%g' % sum(map(float, data)))",
      True,
    ),
    ("print(sum(map(float, open(0).read().split())))", True),
    (
      "import sys, threading\nsys.setrecursionlimit(10 ** 6)\n"
      "threading.stack_size(1 << 26)\ndef main():\n"
      "  print(sum(map(float, input().split())))\n"
      "thread = threading.Thread(target=main)\nthread.start()\n"
      "thread.join()",
      True,
    ),
    (
      "import sys\nprint(sum(map(float, sys.stdin.readline().split())))\n"
      "sys.exit(0)",
      True,
    ),
    ("print(3)", False),
    (
      "a, b = map(float, input().split())\n"
      "print({3.0: 3, 11.0: 11, 1.5: '1.5000000000000001'}[a + b])",
      False,
    ),
    ("print(input() and input())", False),
    ("open('/etc/passwd')", False),
  ],
)
def test_contest_programs_read_and_write_texts(executor, code, correct):
  reply = f"```python\n{code}\n```"
  grade = livecodebench.grade(executor, CONSOLE, reply).result(60)
  assert grade.correct == correct, grade


@pytest.mark.parametrize(
  "body, correct", [("a + b", True), ("a - b", False), ("1 / 0", False)]
)
def test_contest_methods_are_called(executor, body, correct):
  item = contest(
    [
      {"input": "[1]\n[2]", "output": "[1, 2]"},
      {"input": "[]\n[]", "output": "[]"},
    ],
    metadata=json.dumps({"func_name": "join"}),
    starter_code="class Solution:\n  def join(self, a, b):",
  )
  assert "class Solution" in item.request
  code = (
    "class Solution:\n  def join(self, a: List[int], b):\n"
    f"    return tuple({body})"
  )
  reply = f"```python\n{code}\n```"
  grade = livecodebench.grade(executor, item, reply).result(60)
  assert grade.correct == correct, grade


def test_a_pickle_that_makes_things_is_refused():
  packed = base64.b64encode(zlib.compress(pickle.dumps(print))).decode()
  with pytest.raises(pickle.UnpicklingError, match="expected a text"):
    livecodebench._tests(packed)


@pytest.mark.parametrize(
  "reply, letter",
  [
    ("\\boxed{B}", "B"),
    ("\\boxed{\\text{(C)}}", "C"),
    ("I think the answer is (D).", "D"),
    ("<answer>A</answer>", "A"),
    ("B", "B"),
    ("no letter here", None),
    ("I think it is (C).", "C"),
    ("A careful look shows (B)", "B"),
    ("The answer is (C).\nLet me know if this answer helps.", "C"),
    ("The answer is: I would choose (C)", "C"),
    ("A careful look", None),
    ("Answer: B", "B"),
    ("Answer: **B**", "B"),
    ("The correct answer is **C**.", "C"),
    ("The answer is B because x", "B"),
    ("the answer is option C", "C"),
    ("The answer is $\\mathbf{D}$", "D"),
    ("B. Paris", "B"),
    ("A. Rome\nB. Paris", None),
    ("\\boxed{\\textbf{C}}", "C"),
    ("\\boxed{\\mathrm{(C)}}", "C"),
    ("The answer is I think hard to say", None),
  ],
)
def test_letters_are_found(reply, letter):
  assert prompt_formats.choice(reply) == letter


def test_mmlu_gpqa_and_bbh(executor):
  both = multiple_choice.read_mmlu(
    [
      {"question": "q", "choices": ["w", "x", "y", "z"], "answer": 2},
      {"question": "q", "options": list("abcdefghij"), "answer": "J"},
    ]
  )
  assert [item.reference["answer"] for item in both] == ["C", "J"]
  assert "(C) y" in both[0].request and "(J) j" in both[1].request
  row = {"Question": "q", "Correct Answer": "yes"}
  row |= {f"Incorrect Answer {n}": f"no {n}" for n in (1, 2, 3)}
  one, again = multiple_choice.read_gpqa([row, row])
  assert one.request == again.request
  letter = one.reference["answer"]
  assert f"({letter}) yes" in one.request
  found = multiple_choice.read_bbh(FIXTURES)
  assert {item.kind for item in found} == {
    "boolean_expressions",
    "date_understanding",
    "dyck_languages",
  }
  for item in found:
    gold = item.reference["answer"]
    boxed = gold.replace("}", "\\}")
    for reply in (f"\\boxed{{{boxed}}}", f"So the answer is {gold}."):
      assert multiple_choice.grade_words(executor, item, reply).result().correct
    assert (
      not multiple_choice.grade_words(executor, item, "(Z)").result().correct
    )


def test_references_of_gsm8k_grade_as_right(executor):
  raw = rows("gsm8k_4.jsonl")
  items = mathematics.read_problems(raw)
  for row, item in zip(raw, items, strict=True):
    grade = mathematics.grade(executor, item, row["answer"]).result(60)
    assert grade.correct, (row["answer"], grade)
    other = items[0] if item is not items[0] else items[1]
    reply = f"\\boxed{{{other.reference['answer']}}}"
    assert not mathematics.grade(executor, item, reply).result(60).correct


def test_minerva_has_answers_or_solutions():
  both = mathematics.read_minerva(
    [
      {"problem": "p", "solution": "so \\boxed{1.6} cm"},
      {"question": "q", "answer": "2"},
    ]
  )
  assert [item.reference["answer"] for item in both] == ["1.6", "2"]


def test_olympiad_rows_have_units_and_tolerances(executor):
  (item,) = mathematics.read_olympiad(
    [
      {
        "question": "how far",
        "context": "A train.",
        "final_answer": ["$2.5$"],
        "unit": "km",
        "error": "1e-1",
        "subfield": "Algebra",
      }
    ]
  )
  assert item.request.startswith("A train.") and "km" in item.request
  for reply, correct in (("\\boxed{2.58}", True), ("\\boxed{2.7}", False)):
    grade = mathematics.grade(executor, item, reply).result(60)
    assert grade.correct == correct


def test_names_groups_and_averages():
  assert registry.names("gsm8k,math,gsm8k") == ("gsm8k", *registry.MATH)
  assert "gpqa" in registry.names("all")
  with pytest.raises(ValueError, match="'nothing': expected one of"):
    registry.names("nothing")
  scores = dict.fromkeys(registry.CODE, 0.5) | dict.fromkeys(registry.MATH, 0.1)
  assert registry.averages(scores) == pytest.approx(
    {"average/code": 0.5, "average/math": 0.1, "average/overall": 0.3}
  )
  assert registry.averages({"gsm8k": 1.0}) == {}


def test_the_table_compares_with_the_first():
  name = table.main_score("gsm8k")
  one = {name: 0.25, f"{name}_error": 0.01}
  shown = table.show({"base": one, "trained": {name: 0.3}})
  assert shown.splitlines()[2:] == [
    "| base | 25.0 +- 1.0 |",
    "| trained | 30.0 (+5.0) |",
  ]


@pytest.mark.parametrize("form", sorted(prompt_formats.FORMS))
def test_frames_hold_request_and_form(form):
  text = prompt_formats.prompt("REQUEST", form, "full", None)
  assert "REQUEST" in text and prompt_formats.FORMS[form] in text
  assert text.endswith("<think>")
  assert prompt_formats.prompt("REQUEST", form, "plain", None).endswith(
    "Answer:"
  )
  with pytest.raises(ValueError, match="style"):
    prompt_formats.prompt("REQUEST", form, "loud", None)


def test_only_the_answer_is_looked_at():
  reply = "\\boxed{1}</think> then <answer>\\boxed{2}</answer>"
  assert prompt_formats.math(reply) == "2"
  assert prompt_formats.math("\\boxed{1}</think> so 3 or 4,") == "4"
  assert prompt_formats.math("nothing") is None


def test_an_item_is_named_when_its_layout_is_wrong():
  with pytest.raises(KeyError):
    programming.read_humaneval([{"task_id": "1"}])
  assert Item("a", "b", {}).kind == ""
