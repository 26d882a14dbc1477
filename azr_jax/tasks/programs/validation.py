"""Task validation (section 3.3.3): integrity, safety, determinism.

A proposed program is run by the executor in two independent processes with
different hash seeds (j = 2 in the paper); its modules are checked there, on
the syntax tree. Only texts come back.
"""

import ast
import builtins
import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence

from azr_jax.executor import Executor, Job, Result, forbidden, futures, literals
from azr_jax.grading.literals import are_literal_arguments
from azr_jax.tasks.programs.task import (
  FORBIDDEN_MODULES,
  InductionTask,
  Task,
  Triplet,
)

INDEPENDENT_RUNS = 2
# Where a program stands is no part of it: files, modules, memory, its own
# syntax. Exceptions of its own would give the answer away by name.
_NOT_DEDUCED = (OSError, ImportError, MemoryError, SyntaxError, Warning)
DEDUCED_ERRORS = frozenset(
  name
  for name, kind in vars(builtins).items()
  if isinstance(kind, type)
  and issubclass(kind, Exception)
  and not issubclass(kind, _NOT_DEDUCED)
)
# Says which exception of its own `f` raises, if it does and Python defines it.
_RAISE_PROBE = """
def _probe(*values, **named):
  import builtins, inspect
  inspect.signature(f).bind(*values, **named)
  try:
    f(*values, **named)
  except Exception as error:
    kind = type(error)
    if kind is vars(builtins).get(kind.__name__):
      return kind.__name__
"""
# A task is text in later prompts, so its parts are kept prompt-sized.
MAX_CODE_CHARS = 8192
MAX_VALUE_CHARS = 4096


@dataclasses.dataclass(frozen=True)
class Rejection:
  """Why a proposal is not a task.

  `reason` is one of format, error, timeout, blocked, nondeterministic,
  no_output, oversize, duplicate; of error deduction no_error too; of composite
  programs unused, trivial.
  """

  reason: str


Verdict = concurrent.futures.Future[Task | Rejection]


def submit_triplet(
  executor: Executor, code: str, argument_text: str
) -> Verdict:
  """Starts the validation of a program with one input."""

  def make_task(outputs: Sequence[str]) -> Task:
    return Triplet(code, argument_text, outputs[0])

  return _submit(executor, code, (argument_text,), _judge_by(make_task))


def submit_error_triplet(
  executor: Executor, code: str, argument_text: str
) -> Verdict:
  """Starts the validation of a program that raises (appendix D.1).

  What it raises is one of `DEDUCED_ERRORS`, the same in all runs, and raised by
  calling `f` with literal arguments: neither by reading them nor by what stands
  around `f`. Names that the executor withholds would raise there alone.
  """
  if not are_literal_arguments(argument_text) or _uses_withheld(code):
    return futures.done(Rejection("error"))

  def judge(
    result: Result,
  ) -> "Task | Rejection | Verdict":
    if result.status == "ok":
      return Rejection("no_error")
    if result.status != "error" or result.error not in DEDUCED_ERRORS:
      return Rejection(result.status)
    error = result.error
    probe = Job("error", code + _RAISE_PROBE, (argument_text,), entry="_probe")

    def confirm(raised: Result) -> Task | Rejection:
      if raised.outputs[0] != repr(error):
        return Rejection("error")
      return Triplet(code, argument_text, error)

    return futures.then(executor.submit(probe), confirm)

  return _submit(executor, code, (argument_text,), judge)


def _uses_withheld(code: str) -> bool:
  """Whether a program names a builtin that the executor has not."""
  if not any(name in code for name in forbidden.WITHHELD):
    return False
  try:
    tree = literals.guarded_parse(code, "exec")
  except (ValueError, RecursionError):
    return True
  return any(
    isinstance(node, ast.Name) and node.id in forbidden.WITHHELD
    for node in ast.walk(tree)
  )


def submit_induction_task(
  executor: Executor, code: str, inputs: Sequence[str], message: str
) -> Verdict:
  """Starts the validation of inputs for a program; every one must run."""

  def make_task(outputs: Sequence[str]) -> Task:
    return InductionTask(code, tuple(inputs), tuple(outputs), message)

  if len(message) > MAX_VALUE_CHARS:
    return futures.done(Rejection("oversize"))
  return _submit(executor, code, tuple(inputs), _judge_by(make_task))


def _submit(
  executor: Executor,
  code: str,
  inputs: tuple[str, ...],
  judge: "Callable[[Result], Task | Rejection | Verdict]",
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
  return futures.then(executor.submit(job), judge)


def _judge_by(
  make_task: Callable[[Sequence[str]], Task],
) -> Callable[[Result], Task | Rejection]:
  """Every input must give a value that a solver can be shown or asked for."""

  def judge(result: Result) -> Task | Rejection:
    if result.status != "ok":
      return Rejection(result.status)
    outputs = [output for output in result.outputs if output is not None]
    if any(output == "None" for output in outputs):
      return Rejection("no_output")
    if max(map(len, outputs)) > MAX_VALUE_CHARS:
      return Rejection("oversize")
    return make_task(outputs)

  return judge
