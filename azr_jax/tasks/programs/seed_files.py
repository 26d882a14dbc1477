"""Programs with inputs from files, to start self-play from (appendix D.3).

| layout of a record | what becomes of it |
| --- | --- |
| `code`, `input` | as it is; `code` defines `f` (CRUXEval's files) |
| `completion`, `entry_point`, `input_output` | calls it, with the first input |

The second is LeetCodeDataset's, whose imports are in `prompt`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from azr_jax.tasks import records
from azr_jax.tasks.programs.task import FORBIDDEN_MODULES

_IMPORT = re.compile(r"^(?:from|import) (\w+).*$", re.MULTILINE)
_METHOD = re.compile(r"^\s*class Solution\b", re.MULTILINE)


def read(spec: str) -> list[tuple[str, str]]:
  """Programs and argument texts of a file, tensorflow-datasets or the hub.

  Raises:
    ValueError: it cannot be read, has another layout, or is empty.
  """
  found = list(_pairs(spec, records.read(spec)))
  if not found:
    raise ValueError(f"{spec}: expected at least one program")
  return found


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
  """What a solution relies on, but for modules that no task may use."""
  return [
    found[0]
    for found in _IMPORT.finditer(prompt)
    if found[1] not in FORBIDDEN_MODULES
  ]


def _pair(row: Mapping[str, Any]) -> tuple[str, str]:
  if "code" in row:
    return str(row["code"]), str(row["input"])
  solution = str(row["completion"]).rstrip()
  name = str(row["entry_point"]).removeprefix("Solution().")
  owner = "Solution()." if _METHOD.search(solution) else ""
  solution = "\n".join([*_imports(str(row.get("prompt", ""))), solution])
  code = f"{solution}\n\ndef f(*a, **k):\n  return {owner}{name}(*a, **k)"
  return code, str(row["input_output"][0]["input"])
