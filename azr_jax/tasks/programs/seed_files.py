"""Reads seeds of self-play from files (AZR, appendix D.3).

| fields of a record | seed |
| --- | --- |
| `code`, `input` | a program that defines `f`, and one input (CRUXEval) |
| `completion`, `entry_point`, `input_output` | an `f` that calls the entry
  point, and the first input (LeetCodeDataset; its imports are in `prompt`) |
| `code`, `inputs`, `message` | an induction task |
| `code`, `input`, `kind` = `errors` | a program that raises an exception |
| `code`, `message`, `kind` = `environments` | an environment |

A run writes its own seeds in the same format. Outputs are not read, because
validation recomputes them.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from azr_jax.config import user_files
from azr_jax.tasks import records
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.task import (
  FORBIDDEN_MODULES,
  EnvironmentTask,
  InductionTask,
  Task,
  Triplet,
)

# Kinds of seeds: for deduction and abduction, for error deduction, for
# induction, and environments.
TRIPLETS, ERRORS, CASES, ENVIRONMENTS = KINDS = (
  *("triplets", "errors", "cases"),
  "environments",
)
_IMPORT = re.compile(r"^(?:from|import) (\w+).*$", re.MULTILINE)
_METHOD = re.compile(r"^\s*class Solution\b", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class SeedTask:
  """A seed before validation.

  Attributes:
    kind: one of `KINDS`.
    task: the program with its inputs; outputs are blank.
  """

  kind: str
  task: Task


def to_json(kind: str, task: Task) -> dict[str, Any]:
  """Converts a valid seed to a record for `read`."""
  return {"kind": kind, **task_lib.to_json(task)}


def read(spec: str) -> list[SeedTask]:
  """Reads seeds from a spec of `tasks/records.py`.

  Raises:
    ValueError: the source cannot be read, lacks the fields, or is empty.
  """
  with user_files.reading(spec, "records of programs"):
    seeds = list(_seeds(spec, records.read(spec)))
  if not seeds:
    raise ValueError(f"{spec}: expected at least one program")
  return seeds


def _seeds(spec: str, rows: Iterable[Any]) -> Iterable[SeedTask]:
  for number, row in enumerate(rows):
    try:
      yield _seed(row)
    except (KeyError, TypeError, IndexError) as error:
      raise ValueError(
        f"{spec}: record {number}: {error!r}; expected code and input, or "
        "completion, entry_point and input_output, or code, inputs and "
        "message, or code, message and kind = environments"
      ) from None


def _seed(row: Mapping[str, Any]) -> SeedTask:
  if row.get("kind") == ENVIRONMENTS:
    code, message = str(row["code"]), str(row["message"])
    return SeedTask(ENVIRONMENTS, EnvironmentTask(code, message, ""))
  if "message" in row:
    inputs = tuple(map(str, row["inputs"]))
    message = str(row["message"])
    return SeedTask(CASES, InductionTask(str(row["code"]), inputs, (), message))
  kind = ERRORS if row.get("kind") == ERRORS else TRIPLETS
  code, argument_text = _program(row)
  return SeedTask(kind, Triplet(code, argument_text, ""))


def _imports(prompt: str) -> list[str]:
  """Returns a prompt's import lines, except those of forbidden modules."""
  return [
    match[0]
    for match in _IMPORT.finditer(prompt)
    if match[1] not in FORBIDDEN_MODULES
  ]


def _program(row: Mapping[str, Any]) -> tuple[str, str]:
  """Returns (program that defines `f`, input)."""
  if "code" in row:
    return str(row["code"]), str(row["input"])
  solution = str(row["completion"]).rstrip()
  name = str(row["entry_point"]).removeprefix("Solution().")
  instance = "Solution()." if _METHOD.search(solution) else ""
  solution = "\n".join([*_imports(str(row.get("prompt", ""))), solution])
  code = f"{solution}\n\ndef f(*a, **k):\n  return {instance}{name}(*a, **k)"
  return code, str(row["input_output"][0]["input"])
