"""Program tasks: triplets (program, input, output) and induction tasks."""

import dataclasses
from typing import Any

from azr_jax.executor.child import forbidden

DEDUCTION = "deduction"
ABDUCTION = "abduction"
INDUCTION = "induction"
TASK_TYPES = (DEDUCTION, ABDUCTION, INDUCTION)
# An experiment of appendix D.1, not part of the method.
ERROR_DEDUCTION = "error_deduction"
EXTRA_TASK_TYPES = (ERROR_DEDUCTION,)

# The output of a task that was not verified. No value has a blank text, so it
# is mistaken for none.
UNKNOWN = ""

PROPOSE = "propose"
SOLVE = "solve"
ROLES = (PROPOSE, SOLVE)

# Modules that a proposed program may not use (AZR, figure 8).
FORBIDDEN_MODULES = forbidden.RULES_OF_PROPOSALS


@dataclasses.dataclass(frozen=True)
class Triplet:
  """A deduction, abduction or error deduction task: output = f(input).

  Attributes:
    code: a program that defines `f`.
    input: the argument text of one call, e.g. `"'a', [1]"`.
    output: canonical text of the value that the call returns; in an error
      deduction task, the name of the exception that the call raises; `UNKNOWN`
      if the task is not verified.
  """

  code: str
  input: str
  output: str


@dataclasses.dataclass(frozen=True)
class InductionTask:
  """An induction task: find `f`, given half of its cases and a message.

  Attributes:
    code: a program that defines `f`.
    inputs: argument texts of the cases.
    outputs: canonical texts of the outputs of the cases.
    message: the proposer's message to the solver.
  """

  code: str
  inputs: tuple[str, ...]
  outputs: tuple[str, ...]
  message: str


Task = Triplet | InductionTask

# The only task that self-play starts from (AZR, figure 5).
ZERO_TRIPLET = Triplet(
  code="def f(x):\n  return x", input="'Hello World'", output="'Hello World'"
)
# Error deduction starts from this task if seeding yields no task.
ZERO_ERROR_TRIPLET = Triplet(
  code="def f(x):\n  return x + 1", input="'Hello World'", output="TypeError"
)


def is_verified(task: Task) -> bool:
  """Returns whether the executor has seen what the task's program does."""
  return isinstance(task, InductionTask) or task.output != UNKNOWN


def component_name(index: int) -> str:
  """Returns the function name of a component (AZR, appendix D.2)."""
  return f"g_{index}"


def to_json(task: Task) -> dict[str, Any]:
  """Converts a task to JSON values."""
  return dataclasses.asdict(task)


def from_json(record: dict[str, Any]) -> Task:
  """Converts what `to_json` returned back to a task."""
  if "message" in record:
    return InductionTask(
      code=record["code"],
      inputs=tuple(record["inputs"]),
      outputs=tuple(record["outputs"]),
      message=record["message"],
    )
  return Triplet(record["code"], record["input"], record["output"])
