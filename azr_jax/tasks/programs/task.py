"""Program tasks: the triplet (program, input, output) and its two forms."""

import dataclasses
from typing import Any

DEDUCTION = "deduction"
ABDUCTION = "abduction"
INDUCTION = "induction"
TASK_TYPES = (DEDUCTION, ABDUCTION, INDUCTION)
# Appendix D.1: not part of the method.
ERROR_DEDUCTION = "error_deduction"
EXTRA_TASK_TYPES = (ERROR_DEDUCTION,)

PROPOSE = "propose"
SOLVE = "solve"
ROLES = (PROPOSE, SOLVE)

# Figure 8 of the paper: modules that a proposed program may not use.
FORBIDDEN_MODULES = (
  "logging",
  "random",
  "multiprocessing",
  "pebble",
  "subprocess",
  "threading",
  "datetime",
  "time",
  "hashlib",
  "calendar",
  "bcrypt",
  "os.sys",
  "os.path",
  "sys.exit",
  "os.environ",
)


@dataclasses.dataclass(frozen=True)
class Triplet:
  """A deduction, abduction or error deduction task: output = f(input).

  Attributes:
    code: a program that defines `f`.
    input: the argument text of one call, e.g. `"'a', [1]"`.
    output: canonical text of the value that the call returns; of an error
      deduction task, the name of the exception that it raises.
  """

  code: str
  input: str
  output: str


@dataclasses.dataclass(frozen=True)
class InductionTask:
  """An induction task: find `f` from half of its cases and a message."""

  code: str
  inputs: tuple[str, ...]
  outputs: tuple[str, ...]
  message: str


Task = Triplet | InductionTask

# Figure 5 of the paper: the only task that self-play is given.
ZERO_TRIPLET = Triplet(
  code="def f(x):\n  return x", input="'Hello World'", output="'Hello World'"
)
# What error deduction starts from, where the model finds nothing itself.
ZERO_ERROR_TRIPLET = Triplet(
  code="def f(x):\n  return x + 1", input="'Hello World'", output="TypeError"
)


def component_name(index: int) -> str:
  """Returns the function name of a component (AZR, appendix D.2)."""
  return f"g_{index}"


def to_json(task: Task) -> dict[str, Any]:
  """Returns a task as JSON values."""
  return dataclasses.asdict(task)


def from_json(record: dict[str, Any]) -> Task:
  """Returns the task that `to_json` wrote."""
  if "message" in record:
    return InductionTask(
      code=record["code"],
      inputs=tuple(record["inputs"]),
      outputs=tuple(record["outputs"]),
      message=record["message"],
    )
  return Triplet(record["code"], record["input"], record["output"])
