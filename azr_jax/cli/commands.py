"""The commands that an installation has.

setup.py reads this file, so it uses the standard library alone.
"""

import ast
import pathlib

_PACKAGE = pathlib.Path(__file__).parents[1]
# `azr-NAME` and `python -m azr_jax.NAME`, with `_` for `-`, run the same.
COMMANDS = (
  "train",
  "sft",
  "evaluate",
  "compare",
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
  """Returns the console scripts, as setuptools declares them."""
  found = []
  for name in COMMANDS:
    parts = _file(name).relative_to(_PACKAGE.parent).with_suffix("").parts
    found.append(f"azr-{name}={'.'.join(parts)}:run")
  return found


def listing() -> str:
  """Returns a line for each command: its name and what it does."""
  width = max(map(len, COMMANDS))
  return "\n".join(f"azr-{name:{width}s}  {_line(name)}" for name in COMMANDS)


def _file(name: str) -> pathlib.Path:
  path = _PACKAGE / name.replace("-", "_")
  return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def _line(name: str) -> str:
  """Returns the first line of a command's docstring."""
  doc = ast.get_docstring(ast.parse(_file(name).read_text("utf-8"))) or ""
  return doc.partition("\n")[0]
