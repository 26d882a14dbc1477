"""Calls each reader of model text, with made-up references.

Graders that run programs get an executor that runs nothing: each program fails
or, where the report is read, reports the text.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from azr_jax.evals import (
  answer_extraction,
  cruxeval,
  livecodebench,
  multiple_choice,
  oracles,
  programming,
)
from azr_jax.evals.benchmark import Item
from azr_jax.evals.livecodebench_files import PackedTests
from azr_jax.executor import comparison, futures
from azr_jax.executor.child import frames
from azr_jax.executor.job import Job, Result
from azr_jax.executor.pool import verdict
from azr_jax.grading import (
  assertions,
  bbh,
  countdown,
  expressions,
  programs,
  unit_tests,
  votes,
)
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.grading.gym import grader as gym
from azr_jax.grading.mathematics import grader as mathematics
from azr_jax.grading.symbench import grader as symbench
from azr_jax.systems import text_metrics
from azr_jax.systems.azr.extensions import repetition
from azr_jax.systems.code_interpreter import agents, self_checks
from azr_jax.tasks.countdown import prompts as countdown_prompts
from azr_jax.tasks.programs import parsing, validation
from azr_jax.tools import code_blocks
from azr_jax.tools.block_finder import BlockFinder

# Tokens between two checks for a response's end, and characters per token.
_TOKENS_PER_CALL, _CHARS_PER_TOKEN = 32, 4
_JOB = Job("1", "def f(x): return x", ("1",) * 10)
# One data set for each way to read an answer.
_GYM_SETS = (
  "binary_matrix countdown complex_arithmetic polynomial_multiplication "
  "number_sorting calendar_arithmetic".split()
)
_PUZZLE = Puzzle((3, 5, 7), 15)


class _Executor:
  """Runs nothing: each program fails, or reports the same values.

  Attributes:
    output: the text of each value; None makes programs fail.
    libraries: libraries that programs may import.
    timeout_s: time limit of a call, never reached.
  """

  libraries: tuple[str, ...] = ()
  timeout_s = 2.0

  def __init__(self, output: str | None = None):
    self.output = output

  def submit(self, job: Job) -> Any:
    """Returns the future of a made-up verdict."""
    if self.output is None:
      return futures.done(verdict.failure(job, "error", "NoReport"))
    outputs = (self.output,) * len(job.inputs)
    return futures.done(Result(job.id, "ok", outputs, None, 0.0))


def read_report(text: str) -> None:
  """Reads the report of a program that ended or timed out."""
  data = text.encode("ascii", "replace")
  for ending in (frames.REPORTED, frames.CALL_TIMED_OUT):
    verdict.read_reply(_JOB, 0.1, 0.1, ending, data)


def read_runs(text: str) -> None:
  """Compares two runs with five such values each, as the executor does."""
  one, other = ((text + blank,) * 5 for blank in ("", " "))
  results = [Result("1", "ok", run, None, 0.1) for run in (one, other)]
  if comparison.is_short(results):
    comparison.compare(results)
  else:
    comparison.job(results)


def read_sampled(text: str) -> None:
  """Looks for the end of a python block, a few tokens at a time."""
  pieces = [
    text[start : start + _CHARS_PER_TOKEN]
    for start in range(0, len(text), _CHARS_PER_TOKEN)
  ]
  tokens = np.arange(len(pieces))
  finder = BlockFinder(lambda ids: "".join([pieces[i] for i in ids]))
  for count in range(0, len(tokens), _TOKENS_PER_CALL):
    so_far = tokens[: count + _TOKENS_PER_CALL]
    if finder.end_of_block(so_far, 0, count) is not None:
      return


def read_formats(text: str) -> None:
  """Reads the turns of a conversation with the Code Interpreter."""
  for is_last in (False, True):
    code_blocks.is_well_formed(text, is_last)
  agents.read_conversation(json.dumps([text]))


def read_check(text: str) -> None:
  """Reads the second script of a conversation with the Code Interpreter."""
  turns = ["```python\nx\n```", "1", f"```python\n{text}\n```"]
  self_checks.has_self_check(turns)


def read_text_metrics(text: str) -> None:
  """Measures a text's repetition and reflection."""
  text_metrics.repeat_score(text)
  for _, pattern in text_metrics.REFLECTIONS:
    pattern.findall(text)


def read_proposals(text: str) -> None:
  """Reads the fences of a proposal."""
  parsing.parse_triplet_proposal(text)
  parsing.parse_induction_proposal(text, 10)


def read_answers(text: str, answer_format: str) -> None:
  """Reads the fences of each type of answer."""
  parsing.well_formatted(text, answer_format)
  parsing.parse_output_answer(text, answer_format)
  parsing.parse_input_answer(text, answer_format)
  parsing.parse_program_answer(text, answer_format)


def read_proposed(text: str) -> None:
  """Validates a proposed program, and a proposed input."""
  executor: Any = _Executor()
  code = "def f(x): return 1"
  validation.submit_error_triplet(executor, f"{text}\nopen", "1").result()
  validation.submit_triplet(executor, code, text).result()
  validation.submit_induction_task(executor, code, [text], text).result()


def read_puzzles(text: str) -> None:
  """Reads a proposed Countdown puzzle."""
  for prompt_format in countdown_prompts.PROMPT_FORMATS:
    countdown_prompts.parse_proposal(text, prompt_format)


def read_values(text: str) -> None:
  """Grades a program by the value that it reports."""
  executor: Any = _Executor(text)
  tests = assertions.read_tests("assert f(1) == {1: 2}\nassert abs(f(2)) < 3")
  unit_tests.submit(executor, "def f(x): pass", tests).result()
  for entry in ("f", "similar_elements", "find_zero"):
    oracles.is_correct(entry, "[1, 2]", "[1, 2]", text, 0.0)


def read_solutions(text: str) -> None:
  """Grades an answer of AZR's solver."""
  executor: Any = _Executor()
  programs.submit_deduction(executor, "{1: 2}", text).result()
  programs.submit_abduction(executor, "def f(x): 1", "1", [text]).result()
  programs.submit_induction(executor, text, ["1"], ["1"]).result()
  programs.error_correct("ValueError", text)


def read_votes(text: str) -> None:
  """Reads the vote in an answer of AZR's solver."""
  for executor in (_Executor(), _Executor(text)):
    pool: Any = executor
    votes.submit_output(pool, text).result()
    votes.submit_input(pool, text).result()
    votes.submit_program(pool, text, ["1"]).result()
  votes.of_error(text)


def read_repetition(text: str) -> None:
  """Compares a proposed program with another and with itself."""
  repetition.bleu(text, "def f(x):\n  return x")
  repetition.bleu(text, text)


def read_reported(text: str) -> None:
  """Grades answers to AZR's tasks by what programs report."""
  executor: Any = _Executor(text)
  programs.submit_deduction(executor, "1", "1 + 1").result()
  programs.submit_abduction(executor, "def f(x): 1", "1", ["1 + 1"]).result()
  programs.submit_induction(executor, "def f(x): 1", ["1"], ["1"]).result()
  expressions.submit_arguments(executor, ["1 + 1"]).result()


def read_benchmark_answers(text: str) -> None:
  """Finds each kind of answer in a response to a benchmark."""
  answer_extraction.code(text, ["f"])
  answer_extraction.fenced(text, "output")
  answer_extraction.math(text)
  answer_extraction.short_answer(text)
  answer_extraction.last_words(text)


def read_benchmark_programs(text: str) -> None:
  """Finds the program in a response to a benchmark."""
  executor: Any = _Executor()
  item = Item("1", "", {"prompt_code": "def f(x):", "entry": "f", "tests": ""})
  programming.program(item, text)
  tests = PackedTests([{"input": "1", "output": "1"}], "")
  item = Item("1", "", {"function": "f"}, hidden=tests)
  livecodebench.grade(executor, item, text).result()


def read_choices(text: str) -> None:
  """Grades a choice and a text answer."""
  executor: Any = _Executor()
  for answer in ("(B)", "valid"):
    item = Item("1", "", {"answer": answer})
    multiple_choice.grade_words(executor, item, text).result()


def read_cruxeval(text: str) -> None:
  """Grades a value and arguments."""
  executor: Any = _Executor()
  code = {"code": "def f(x): 1", "objects": False}
  item = Item("1", "", {"output": "1", **code})
  cruxeval.grade_output(executor, item, text).result()
  cruxeval.grade_input(executor, item, text).result()


def read_bbh(text: str) -> None:
  """Grades an answer to a question of BIG-Bench Hard."""
  for target in ("(B)", "12", "{ } [ ]", "valid", "a b c"):
    bbh.correct(target, text)


def read_gym(text: str) -> None:
  """Grades an answer to each kind of question of reasoning-gym."""
  executor: Any = _Executor()
  reference = repr({"settings": {}, "entry": {"answer": "1, 2"}})
  for name in _GYM_SETS:
    gym.submit(executor, name, reference, text).result()


def read_mathematics(text: str) -> None:
  """Grades a mathematical answer of several kinds."""
  executor: Any = _Executor()
  for reference in ("5\\text{ cm}", "x=\\frac{1}{2}", "(1,2),(3,4)"):
    mathematics.submit(executor, reference, text).result()


_SQUARE = [["0"] * 8] * 8
_SYMBENCH: Mapping[str, Mapping[str, Any]] = {
  "2048": {"answer": "1 2 0.5"},
  "blocksworld": {
    "start": {"stack1": ["A"], "stack2": []},
    "goal": {"stack2": ["A"]},
  },
  "boxlift": {"lifters": [50], "boxes": [40], "steps": 5},
  "boxnet": {"cells": {"0.5_0.5": ["box_red", "target_red"]}},
  "combinatorial_calculation": {"numbers": [1, 2], "target": 3},
  "constrained_linear_arrangement": {
    "game": "animal",
    "moves": ["A"],
    "results": ["win"],
  },
  "eight_queens": {"board": _SQUARE},
  "game24": {"numbers": [1, 2, 3, 4], "target": 24},
  "gridworld": {
    "size": [5, 5],
    "start": [0, 0],
    "visit": [[1, 1, 2, 2]],
    "forbidden": [[3, 3, 4, 4]],
  },
  "gsm": {"answer": "0.5"},
  "letter_logic_diagram": {"grid": _SQUARE},
  "letters": {"word": "banana", "letter": "a"},
  "light_puzzles": {"answer": "1 0"},
  "logic_puzzle": {
    "grid": [[1, 2], [3, 4]],
    "first": [0, 0],
    "count": 2,
    "rule": "sum",
    "most": 9,
  },
  "logical_equation": {"numbers": [1], "equations": []},
  "permutations_and_combinations": {"items": ["a"], "constraints": []},
  "standard_sudoku": {"grid": _SQUARE},
  "string_insertion": {"answer": "abc"},
  "math_geometry": {"answer": "5"},
}


def read_symbench(text: str) -> None:
  """Grades an answer to each kind of question of SymBench."""
  executor: Any = _Executor()
  for name, reference in _SYMBENCH.items():
    symbench.submit(executor, name, repr(reference), text).result()


def read_countdown(text: str, mode: str) -> None:
  """Grades a response to a puzzle."""
  countdown.explain(_PUZZLE, text, mode)
