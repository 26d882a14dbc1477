"""Task validation (section 3.3.3): integrity, safety, determinism.

A proposed program is run by the executor in two independent processes with
different hash seeds (j = 2 in the paper); its modules are checked there, on
the syntax tree. Only texts come back.
"""

import ast
import concurrent.futures
import dataclasses
import re
from collections.abc import Callable, Collection, Sequence

from azr_jax.executor import Executor, Job, Result, literals
from azr_jax.grading import futures
from azr_jax.tasks.programs.task import (
  FORBIDDEN_MODULES,
  InductionTask,
  Task,
  Triplet,
)

INDEPENDENT_RUNS = 2
# What `strip` can remove. Writing a program out anew drops its comments always.
STRIPPED = ("comments", "globals")
# A task is text in later prompts, so its parts are kept prompt-sized.
MAX_CODE_CHARS = 8192
MAX_VALUE_CHARS = 4096


@dataclasses.dataclass(frozen=True)
class Rejection:
  """Why a proposal is not a task.

  `reason` is one of format, error, timeout, blocked, nondeterministic,
  no_output, oversize.
  """

  reason: str


Verdict = concurrent.futures.Future[Task | Rejection]


def submit_triplet(
  executor: Executor, code: str, argument_text: str
) -> Verdict:
  """Starts the validation of a program with one input."""

  def make_task(outputs: Sequence[str]) -> Task:
    return Triplet(code, argument_text, outputs[0])

  return _submit(executor, code, (argument_text,), make_task)


def submit_induction_task(
  executor: Executor, code: str, inputs: Sequence[str], message: str
) -> Verdict:
  """Starts the validation of inputs for a program; every one must run."""

  def make_task(outputs: Sequence[str]) -> Task:
    return InductionTask(code, tuple(inputs), tuple(outputs), message)

  if len(message) > MAX_VALUE_CHARS:
    return futures.done(Rejection("oversize"))
  return _submit(executor, code, tuple(inputs), make_task)


def _submit(
  executor: Executor,
  code: str,
  inputs: tuple[str, ...],
  make_task: Callable[[Sequence[str]], Task],
) -> Verdict:
  if len(code) > MAX_CODE_CHARS or max(map(len, inputs)) > MAX_VALUE_CHARS:
    return futures.done(Rejection("oversize"))
  if any(map(literals.has_comment, inputs)):  # It would be read in prompts.
    return futures.done(Rejection("error"))
  job = Job(
    id="validation",
    code=code,
    inputs=inputs,
    runs=INDEPENDENT_RUNS,
    forbidden=FORBIDDEN_MODULES,
  )
  return futures.then(
    executor.submit(job), lambda result: _judge(result, make_task)
  )


def _judge(
  result: Result, make_task: Callable[[Sequence[str]], Task]
) -> Task | Rejection:
  if result.status != "ok":
    return Rejection(result.status)
  outputs = [output for output in result.outputs if output is not None]
  if any(output == "None" for output in outputs):
    return Rejection("no_output")
  if max(map(len, outputs)) > MAX_VALUE_CHARS:
    return Rejection("oversize")
  return make_task(outputs)


def strip(code: str, what: Collection[str]) -> str:
  """Removes what says more than the program does (appendix D.5).

  Args:
    code: of a program.
    what: some of `STRIPPED`: `comments`, docstrings too; `globals`,
      module-level statements but imports, functions and classes.

  Returns:
    The program. Text that does not parse is returned as it is, for validation
    to refuse; so is a program too deep to write out.
  """
  if not what:
    return code
  try:
    tree = literals.guarded_parse(code, "exec")
    assert isinstance(tree, ast.Module)
    return _stripped(tree, what)
  except (ValueError, RecursionError):  # Integers too long to write, too.
    return code


def _stripped(tree: ast.Module, what: Collection[str]) -> str:
  kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
  if "globals" in what:
    tree.body = [node for node in tree.body if isinstance(node, kept)]
  for node in ast.walk(tree) if "comments" in what else ():
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
      if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or [ast.Pass()]
  # Two spaces for four; in a line's middle they are a string's.
  return re.sub(
    "^(?:    )+", lambda run: run[0][::2], ast.unparse(tree), flags=re.MULTILINE
  )
