"""The installed commands.

setup.py runs this file, so it imports only the standard library.
"""

import ast
import pathlib

_PACKAGE = pathlib.Path(__file__).parents[1]
# `azr-NAME` is the same as `python -m azr_jax.NAME`, with `_` for `-`.
COMMANDS = (
  "train",
  "sft",
  "evaluate",
  "compare",
  "decompose",
  "experiment",
  "report",
  "export",
  "executor",
  "grading",
  "serve",
  "compile-check",
  "benchmark",
  "agreement",
  "propose",
  "potential",
  "trajectories",
  "select-problems",
  "fetch",
)


def entry_points() -> list[str]:
  """Returns the console scripts in setuptools' format."""
  found = []
  for name in COMMANDS:
    parts = _file(name).relative_to(_PACKAGE.parent).with_suffix("").parts
    found.append(f"azr-{name}={'.'.join(parts)}:run")
  return found


def listing() -> str:
  """Returns a line per command: its name and what it does."""
  width = max(map(len, COMMANDS))
  return "\n".join(f"azr-{name:{width}s}  {_line(name)}" for name in COMMANDS)


def _file(name: str) -> pathlib.Path:
  path = _PACKAGE / name.replace("-", "_")
  return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def _line(name: str) -> str:
  """Returns the first line of a command's docstring."""
  doc = ast.get_docstring(ast.parse(_file(name).read_text("utf-8"))) or ""
  return doc.partition("\n")[0]
