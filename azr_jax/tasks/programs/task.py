"""Program tasks: triplets, induction tasks, and environments."""

import dataclasses
from typing import Any

from azr_jax.executor.child import forbidden

DEDUCTION = "deduction"
ABDUCTION = "abduction"
INDUCTION = "induction"
TASK_TYPES = (DEDUCTION, ABDUCTION, INDUCTION)
# An experiment (AZR, appendix D.1), not part of the method.
ERROR_DEDUCTION = "error_deduction"
# Programs that make tasks (EvoEnv, arXiv 2605.14392).
ENVIRONMENT = "environment"
EXTRA_TASK_TYPES = (ERROR_DEDUCTION, ENVIRONMENT)

# The output of an unverified task. No value has a blank text, so it cannot be
# mistaken for one.
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
    output: the canonical text of the returned value, or in error deduction the
      name of the raised exception. `UNKNOWN` if the task is not verified.
  """

  code: str
  input: str
  output: str


@dataclasses.dataclass(frozen=True)
class InductionTask:
  """An induction task: find `f`, given half of its cases and a message.

  Attributes:
    code: a program that defines `f`.
    inputs: the argument texts of the cases.
    outputs: the canonical texts of the cases' outputs.
    message: the proposer's message to the solver.
  """

  code: str
  inputs: tuple[str, ...]
  outputs: tuple[str, ...]
  message: str


@dataclasses.dataclass(frozen=True)
class EnvironmentTask:
  """A program that makes the instances of a task, solves and scores them.

  Attributes:
    code: a program that defines `generate(seed)`, `solve(instance)` and
      `score(instance, answer)`.
    message: what the solver reads about the task.
    behavior: a hash of the instances and answers of its validation. Programs
      that do the same have the same.
  """

  code: str
  message: str
  behavior: str


@dataclasses.dataclass(frozen=True)
class Instance:
  """One instance of an environment, which a solver gets.

  Attributes:
    environment: what made it.
    value: the text of the value of `generate`.
    answer: the text of the value of `solve`. Other answers may be right, too.
  """

  environment: EnvironmentTask
  value: str
  answer: str

  @property
  def code(self) -> str:
    """The program of the environment."""
    return self.environment.code


Task = Triplet | InductionTask | EnvironmentTask | Instance

# The only task that self-play starts from (AZR, figure 5).
ZERO_TRIPLET = Triplet(
  code="def f(x):\n  return x", input="'Hello World'", output="'Hello World'"
)
# Error deduction starts from this task if seeding finds none.
ZERO_ERROR_TRIPLET = Triplet(
  code="def f(x):\n  return x + 1", input="'Hello World'", output="TypeError"
)


def is_verified(task: Task) -> bool:
  """Returns whether the executor has computed the task's output."""
  return not isinstance(task, Triplet) or task.output != UNKNOWN


def buffered(task: Task) -> Task:
  """Returns the task of a buffer that a solved task comes from."""
  return task.environment if isinstance(task, Instance) else task


def component_name(index: int) -> str:
  """Returns the function name of a component (AZR, appendix D.2)."""
  return f"g_{index}"


def to_json(task: Task) -> dict[str, Any]:
  """Converts a task to JSON values."""
  return dataclasses.asdict(task)


def from_json(record: dict[str, Any]) -> Task:
  """Restores a task from the result of `to_json`."""
  if "environment" in record:
    environment = EnvironmentTask(**record["environment"])
    return Instance(environment, record["value"], record["answer"])
  if "behavior" in record:
    return EnvironmentTask(
      record["code"], record["message"], record["behavior"]
    )
  if "message" in record:
    return InductionTask(
      code=record["code"],
      inputs=tuple(record["inputs"]),
      outputs=tuple(record["outputs"]),
      message=record["message"],
    )
  return Triplet(record["code"], record["input"], record["output"])
