"""Graders on complete public files, if they are in `shared/data`."""

import ast
import pathlib
import re

import pytest
from excerpts import with_other_returns

from azr_jax.evals import cruxeval, mathematics, programming
from azr_jax.executor import Executor
from azr_jax.grading.mathematics import extraction, grader
from azr_jax.tasks import records

DATA = pathlib.Path(__file__).parents[3] / "shared" / "data"
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(not DATA.is_dir(), reason="needs the public files"),
]


@pytest.fixture(name="executor", scope="module")
def make_executor():
  with Executor(workers=2, timeout_s=10.0, memory_mb=1024) as executor:
    yield executor


def rows(name):
  return list(records.read(str(DATA / name)))


def count_correct(pending):
  return sum(future.result(120).correct for future in pending)


def test_humaneval(executor):
  raw = rows("humaneval/HumanEval.jsonl")
  items = programming.read_humaneval(raw)
  whole = [row["prompt"] + row["canonical_solution"] for row in raw]
  others = [
    with_other_returns(code, row["entry_point"])
    for code, row in zip(whole, raw, strict=True)
  ]
  for codes, count in ((whole, 164), (others, 0)):
    submitted = [
      programming.submit_program(executor, item, code)
      for item, code in zip(items, codes, strict=True)
    ]
    assert count_correct(submitted) == count


def entry_of(row):
  """Returns the reference's function that the first test calls."""
  tree = ast.parse(row["code"])
  names = [node.name for node in tree.body if hasattr(node, "name")]
  called = [n for n in names if re.search(rf"\b{n} ?\(", row["test_list"][0])]
  return max(called, key=len)


# Some references have "\\w" in non-raw strings.
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mbpp(executor):
  raw = rows("mbpp/mbpp_without_sanitized.jsonl")
  items = programming.read_mbpp(raw)
  whole = [row["code"] for row in raw]
  others = [with_other_returns(row["code"], entry_of(row)) for row in raw]
  for codes, count in ((whole, 547), (others, 0)):
    submitted = [
      programming.submit_program(executor, item, code)
      for item, code in zip(items, codes, strict=True)
    ]
    assert count_correct(submitted) == count


def test_cruxeval(executor):
  raw = rows("cruxeval/cruxeval_shared600.jsonl")
  outputs = [
    cruxeval.grade_output(executor, item, f"\\boxed{{{row['output']}}}")
    for item, row in zip(cruxeval.read_outputs(raw), raw, strict=True)
  ]
  assert count_correct(outputs) == 600
  inputs = [
    cruxeval.grade_input(executor, item, f"```input\n{row['input']}\n```")
    for item, row in zip(cruxeval.read_inputs(raw), raw, strict=True)
  ]
  graded = zip(raw, inputs, strict=True)
  # The arguments of this sample refer to a name in the program.
  assert [r["id"] for r, g in graded if not g.result(60).correct] == [
    "sample_258"
  ]


FILES = {
  "math500/simplerl_math500.jsonl": mathematics.read_problems,
  "math500/orz_math500.json": mathematics.read_problems,
  "aime24/orz_aime2024.json": mathematics.read_problems,
  "amc23/amc23.jsonl": mathematics.read_problems,
  "olympiadbench/olympiadbench_oe_to_en.jsonl": mathematics.read_olympiad,
  "minerva_math/minerva_math.jsonl": mathematics.read_minerva,
}


@pytest.mark.parametrize("mode", grader.MODES)
@pytest.mark.parametrize("name", sorted(FILES))
def test_references_equal_themselves_and_not_the_next(executor, name, mode):
  answers = [item.reference["answer"] for item in FILES[name](rows(name))]
  assert len(answers) >= 30
  same = [grader.submit(executor, text, text, mode) for text in answers]
  assert all(future.result(120) for future in same)
  pairs = [
    (answer, other)
    for answer, other in zip(answers, answers[1:] + answers[:1], strict=True)
    if answer != other
  ]
  grades = [grader.submit(executor, *pair, mode) for pair in pairs]
  equal = [p for p, g in zip(pairs, grades, strict=True) if g.result(120)]
  assert set(equal) <= {("5", "x=5")}


@pytest.mark.parametrize(
  "name", ["aime24/qwen_aime24.jsonl", "math500/simplerl_math500.jsonl"]
)
def test_boxes_of_worked_solutions_match(executor, name):
  for row in rows(name):
    box = extraction.last_boxed(row["solution"])
    assert grader.submit(executor, str(row["answer"]), box).result(60), row
