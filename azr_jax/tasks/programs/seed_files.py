"""Programs with inputs from files, which self-play starts from.

Paper: AZR, appendix D.3.

| fields of a record | program and input |
| --- | --- |
| `code`, `input` | these fields; `code` defines `f` (CRUXEval) |
| `completion`, `entry_point`, `input_output` | an `f` that calls the entry
  point, and the first input (LeetCodeDataset; its imports are in `prompt`) |
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from azr_jax.config import user_files
from azr_jax.tasks import records
from azr_jax.tasks.programs.task import FORBIDDEN_MODULES

_IMPORT = re.compile(r"^(?:from|import) (\w+).*$", re.MULTILINE)
_METHOD = re.compile(r"^\s*class Solution\b", re.MULTILINE)


def read(spec: str) -> list[tuple[str, str]]:
  """Reads (program, argument text) pairs from a spec of `tasks/records.py`.

  Raises:
    ValueError: the source cannot be read, has other fields, or is empty.
  """
  with user_files.reading(spec, "records of programs"):
    pairs = list(_pairs(spec, records.read(spec)))
  if not pairs:
    raise ValueError(f"{spec}: expected at least one program")
  return pairs


def _pairs(spec: str, rows: Iterable[Any]) -> Iterable[tuple[str, str]]:
  for number, row in enumerate(rows):
    try:
      yield _pair(row)
    except (KeyError, TypeError, IndexError) as error:
      raise ValueError(
        f"{spec}: record {number}: {error!r}; expected code and input, or "
        "completion, entry_point and input_output"
      ) from None


def _imports(prompt: str) -> list[str]:
  """Returns the import lines of a prompt, without forbidden modules."""
  return [
    match[0]
    for match in _IMPORT.finditer(prompt)
    if match[1] not in FORBIDDEN_MODULES
  ]


def _pair(row: Mapping[str, Any]) -> tuple[str, str]:
  if "code" in row:
    return str(row["code"]), str(row["input"])
  solution = str(row["completion"]).rstrip()
  name = str(row["entry_point"]).removeprefix("Solution().")
  instance = "Solution()." if _METHOD.search(solution) else ""
  solution = "\n".join([*_imports(str(row.get("prompt", ""))), solution])
  code = f"{solution}\n\ndef f(*a, **k):\n  return {instance}{name}(*a, **k)"
  return code, str(row["input_output"][0]["input"])
