"""Reward and scored sums of `experiments/tracebacks`."""

import json
import pathlib
import subprocess
import sys

import pytest

from azr_jax.systems.custom import sandboxed
from experiments.tracebacks import sums

FOLDER = pathlib.Path(sums.__file__).parent
CHECK = """def check(question, answer):
  if eval(question) != answer:
    raise AssertionError(f"{question} = {eval(question)}")
"""


def read(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
  "response, value", [(" 45", "45"), ("035", "'035'"), (" 3 +", "'3 +'")]
)
def test_feedback_is_what_python_prints(tmp_path, executor, response, value):
  (tmp_path / "check.py").write_text(CHECK)
  line = 'check("12 + 23", answer)'
  (tmp_path / "sum.py").write_text(f"answer = {value}\n{line}\n")
  script = "import builtins, check; builtins.check = check.check; import sum"
  printed = subprocess.run(
    [sys.executable, "-c", script],
    cwd=tmp_path,
    capture_output=True,
    text=True,
  ).stderr
  reward = sandboxed.read(f"{sums.__file__}:told")
  known = {"completion": response, "question": "12 + 23", "answer": "35"}
  got = reward.submit(executor, known).result().value
  assert got["reward"] == 0.0
  first, frame, code, error = got["feedback"].splitlines()
  assert [first, error] == [printed.splitlines()[i] for i in (0, -1)]
  assert code == f"    {line}" and code in printed.splitlines()
  assert frame == '  File "sum.py", line 2, in <module>'


def test_a_right_sum_has_no_feedback():
  assert sums.told(" 35\n", "12 + 23", "35") == 1.0


def test_no_scored_sum_was_trained_on_or_scored_before():
  def pairs(path):
    return [frozenset(row["question"].split(" + ")) for row in read(path)]

  scored = pairs(FOLDER / "scored.jsonl")
  assert len(set(scored)) == len(scored) == 1916
  assert not {frozenset(("12", "23")), frozenset(("61", "20"))} & set(scored)
  before = FOLDER.parent / "two_numbers"
  for name in ("train", "held_out"):
    assert not set(scored) & set(pairs(before / f"{name}.jsonl"))


def test_the_answers_of_scored_sums_are_right():
  for row in read(FOLDER / "scored.jsonl"):
    a, b = map(int, row["question"].split(" + "))
    assert row["answer"] == f"#### {a + b}"
