"""Programs written anew: with less in them."""

import ast
import re
from collections.abc import Collection

from azr_jax.executor import literals

# What `strip` can remove. Writing a program out anew drops its comments always.
STRIPPED = ("comments", "globals")


def strip(code: str, what: Collection[str]) -> str:
  """Removes what says more than the program does (appendix D.5).

  Args:
    code: of a program.
    what: some of `STRIPPED`: `comments`, docstrings too; `globals`,
      module-level statements but imports, functions and classes.

  Returns:
    The program. Text that does not parse is returned as it is, for validation
    to refuse; so is a program too deep to write out.
  """
  if not what:
    return code
  try:
    tree = literals.guarded_parse(code, "exec")
    assert isinstance(tree, ast.Module)
    return _stripped(tree, what)
  except (ValueError, RecursionError):  # Integers too long to write, too.
    return code


def _stripped(tree: ast.Module, what: Collection[str]) -> str:
  kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
  if "globals" in what:
    tree.body = [node for node in tree.body if isinstance(node, kept)]
  for node in ast.walk(tree) if "comments" in what else ():
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
      if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or [ast.Pass()]
  return write(tree)


def write(tree: ast.Module) -> str:
  """Writes a program out, without comments, indented by two spaces."""
  # Not in a line's middle: there they are a string's.
  return re.sub(
    "^(?:    )+", lambda run: run[0][::2], ast.unparse(tree), flags=re.MULTILINE
  )
