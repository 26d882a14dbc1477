"""Validates proposed tasks: integrity, safety and determinism.

Paper: AZR, section 3.3.3. The executor runs a proposed program in two
independent processes with different hash seeds (j = 2 in the paper). It checks
the program's imports on the syntax tree. The processes return only text.

A program gets a fraction of the time that grading allows
(`executor.validation_fraction`). With the same limit, timing noise could make
the reference answer of a slow task time out, and the task would look hard.

An input may be an expression (`list(range(10))`), or a literal of which Python
drops a part (`{1: 2, 1: 3}`). It is then evaluated without the program
(`grading/expressions.py`), and the task stores the literal of its value. So a
task's input is always a valid answer for a solver, and reveals nothing but the
value.
"""

import ast
import builtins
import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence
from typing import Self

from azr_jax.executor import Executor, Job, Result, futures, literals
from azr_jax.executor.child import forbidden
from azr_jax.grading import expressions, values
from azr_jax.grading.literals import are_literal_arguments
from azr_jax.tasks.programs.task import (
  FORBIDDEN_MODULES,
  InductionTask,
  Instance,
  Task,
  Triplet,
)
from azr_jax.text import excerpts

INDEPENDENT_RUNS = 2
# Exceptions that depend on the environment instead of the program: files,
# modules, memory and syntax. Exceptions that the program defines are excluded,
# too, because their names would reveal the answer.
_NOT_DEDUCED = (OSError, ImportError, MemoryError, SyntaxError, Warning)
DEDUCED_ERRORS = frozenset(
  name
  for name, builtin in vars(builtins).items()
  if isinstance(builtin, type)
  and issubclass(builtin, Exception)
  and not issubclass(builtin, _NOT_DEDUCED)
)
# Returns the name of the built-in exception that `f` raises, or None.
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
# Sizes are limited because tasks become parts of later prompts.
MAX_CODE_CHARS = 8192
MAX_VALUE_CHARS = 4096


@dataclasses.dataclass(frozen=True)
class Rejection:
  """The reason why a proposal is not a valid task.

  Attributes:
    reason: one of format, input, error, timeout, blocked, nondeterministic,
      no_output, oversize, duplicate; for error deduction also no_error; for
      composite programs also unused and trivial. The reason is `input` if an
      input has a comment, is not an expression over values, or has no literal
      (such as an object or a function).
    detail: a sentence about what the program does; "" if nothing is known.
  """

  reason: str
  detail: str = dataclasses.field(default="", compare=False)

  @classmethod
  def of(cls, inputs: Sequence[str], result: Result, entry: str = "f") -> Self:
    """Returns the rejection of a program whose run failed.

    Args:
      inputs: the arguments of its calls.
      result: the result of the run, whose status is not `ok`.
      entry: the function that was called.
    """
    if result.status == "blocked":
      return cls(result.status, f"It has `{result.error}`.")
    if result.status == "error" and None in result.outputs:
      call = excerpts.quoted(inputs[result.outputs.index(None)])
      return cls(result.status, f"{entry}({call}) fails with {result.error}.")
    return cls(result.status)


# A task, the instances of an environment, or why the proposal is neither.
Verdict = Task | tuple[Instance, ...] | Rejection
ValidationFuture = concurrent.futures.Future[Verdict]


def submit_triplet(
  executor: Executor, code: str, argument_text: str
) -> ValidationFuture:
  """Starts validating a program with one input.

  Args:
    executor: the executor that runs the program.
    code: a program that defines `f`.
    argument_text: the arguments of one call of `f`.

  Returns:
    A future of a `Triplet` or a `Rejection`.
  """

  def make_task(inputs: Sequence[str], outputs: Sequence[str]) -> Task:
    return Triplet(code, inputs[0], outputs[0])

  return _submit(executor, code, (argument_text,), _judge_by(make_task))


def submit_error_triplet(
  executor: Executor, code: str, argument_text: str
) -> ValidationFuture:
  """Starts validating a program that raises (AZR, appendix D.1).

  The exception must be one of `DEDUCED_ERRORS` and the same in all runs. It
  must come from the call of `f`, not from evaluating its arguments or from code
  outside of `f`. Programs that use builtins which the executor removes are
  rejected, because they raise only in the executor.
  """
  if _uses_removed_builtin(code):
    return futures.done(Rejection("error"))

  def judge(
    inputs: Sequence[str], result: Result
  ) -> "Verdict | ValidationFuture":
    if result.status == "ok":
      call, output = map(excerpts.quoted, (inputs[0], str(result.outputs[0])))
      return Rejection("no_error", f"f({call}) returns {output}.")
    if result.status != "error" or result.error not in DEDUCED_ERRORS:
      return Rejection.of(inputs, result)
    error = result.error
    probe = Job(
      "error",
      code + _RAISE_PROBE,
      tuple(inputs),
      entry="_probe",
      forbidden=FORBIDDEN_MODULES,
    )

    def confirm(raised: Result) -> Verdict:
      if raised.status == "timeout":
        return Rejection(raised.status)
      if raised.outputs[0] != repr(error):
        return Rejection("error")
      return Triplet(code, inputs[0], error)

    return futures.then(executor.submit(probe), confirm)

  return _submit(executor, code, (argument_text,), judge)


def _uses_removed_builtin(code: str) -> bool:
  """Returns whether a program uses a builtin that the executor removes."""
  if not any(name in code for name in forbidden.REMOVED_BUILTINS):
    return False
  try:
    tree = literals.guarded_parse(code, "exec")
  except (ValueError, RecursionError):
    return True
  return any(
    isinstance(node, ast.Name) and node.id in forbidden.REMOVED_BUILTINS
    for node in ast.walk(tree)
  )


def submit_induction_task(
  executor: Executor, code: str, inputs: Sequence[str], message: str
) -> ValidationFuture:
  """Starts validating an induction task. Every input must run.

  Returns:
    A future of an `InductionTask` or a `Rejection`.
  """

  def make_task(inputs: Sequence[str], outputs: Sequence[str]) -> Task:
    return InductionTask(code, tuple(inputs), tuple(outputs), message)

  if len(message) > MAX_VALUE_CHARS:
    return futures.done(Rejection("oversize"))
  return _submit(executor, code, tuple(inputs), _judge_by(make_task))


def submit_again(executor: Executor, task: Task) -> ValidationFuture:
  """Starts validating a triplet or an induction task of a file."""
  if isinstance(task, InductionTask):
    return submit_induction_task(executor, task.code, task.inputs, task.message)
  assert isinstance(task, Triplet)
  return submit_triplet(executor, task.code, task.input)


# Maps the inputs (all literals) and the program's result to a task or rejection
# (or to the future of one).
_Judge = Callable[[Sequence[str], Result], "Verdict | ValidationFuture"]


def _submit(
  executor: Executor, code: str, inputs: tuple[str, ...], judge: _Judge
) -> ValidationFuture:
  """Starts evaluating the inputs, then running the program on them."""
  if _is_oversize(code, inputs):
    return futures.done(Rejection("oversize"))
  # Solvers would see a comment in an input.
  if any(map(literals.has_comment, inputs)):
    return futures.done(Rejection("input"))
  written = [
    text
    for text in inputs
    if not are_literal_arguments(text) or values.drops_items(text)
  ]
  if not written:
    return _run(executor, code, inputs, judge)
  if not all(map(expressions.are_arguments, written)):
    return futures.done(Rejection("input"))

  def run(result: Result) -> "Rejection | ValidationFuture":
    if result.status != "ok":
      is_error = result.status == "error"
      return Rejection("input" if is_error else result.status)
    outputs = zip(written, result.outputs, strict=True)
    literal = {text: value for text, value in outputs if value is not None}
    literals_only = tuple(literal.get(text, text) for text in inputs)
    if len(set(literals_only)) < len(set(inputs)):
      return Rejection("input")  # Two inputs have the same value.
    return _run(executor, code, literals_only, judge)

  evaluated = expressions.submit_arguments(executor, written, validation=True)
  return futures.then(evaluated, run)


def _is_oversize(code: str, inputs: Sequence[str]) -> bool:
  return len(code) > MAX_CODE_CHARS or max(map(len, inputs)) > MAX_VALUE_CHARS


def _run(
  executor: Executor, code: str, inputs: tuple[str, ...], judge: _Judge
) -> ValidationFuture:
  """Starts running a program on inputs that are literals."""
  if _is_oversize(code, inputs):
    return futures.done(Rejection("oversize"))
  job = Job(
    id="validation",
    code=code,
    inputs=inputs,
    runs=INDEPENDENT_RUNS,
    forbidden=FORBIDDEN_MODULES,
    validation=True,
  )
  return futures.then(
    executor.submit(job), lambda result: judge(inputs, result)
  )


def _judge_by(
  make_task: Callable[[Sequence[str], Sequence[str]], Task],
) -> _Judge:
  """Returns a judge that makes a task unless an output is None or too long."""

  def judge(inputs: Sequence[str], result: Result) -> Verdict:
    if result.status != "ok":
      return Rejection.of(inputs, result)
    outputs = [output for output in result.outputs if output is not None]
    if any(output == "None" for output in outputs):
      return Rejection("no_output")
    if max(map(len, outputs)) > MAX_VALUE_CHARS:
      return Rejection("oversize")
    return make_task(inputs, outputs)

  return judge
