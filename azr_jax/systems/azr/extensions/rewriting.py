"""Rewrites programs without their comments or globals (AZR, D.5)."""

import ast
import re
from collections.abc import Collection

from azr_jax.executor import literals

# The parts that `strip` can remove. Rewriting a program always drops comments.
STRIPPED = ("comments", "globals")


def strip(code: str, what: Collection[str]) -> str:
  """Returns a program without some of its parts.

  Args:
    code: the program.
    what: some of `STRIPPED`. `comments`: comments and docstrings; `globals`:
      module-level statements except imports, functions and classes.

  Returns:
    The program. A text that cannot be parsed or rewritten is returned as it is;
    validation rejects it.
  """
  if not what:
    return code
  try:
    tree = literals.guarded_parse(code, "exec")
    assert isinstance(tree, ast.Module)
    return _stripped(tree, what)
  # A ValueError is also raised by integers that are too long to write.
  except (ValueError, RecursionError):
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
  """Returns the program of a tree, indented by two spaces."""
  # Only spaces at the beginning of a line are indentation.
  return re.sub(
    "^(?:    )+", lambda run: run[0][::2], ast.unparse(tree), flags=re.MULTILINE
  )
