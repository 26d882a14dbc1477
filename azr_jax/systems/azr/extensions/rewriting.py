"""Strips comments or globals from programs (AZR, D.5)."""

import ast
import re
from collections.abc import Collection

from azr_jax.executor import literals

# Parts that `strip` can remove. Any rewrite of a program drops its comments.
STRIPPED = ("comments", "globals")
_WITH_DOCSTRINGS = (
  *(ast.Module, ast.ClassDef),
  *(ast.FunctionDef, ast.AsyncFunctionDef),
)


def strip(code: str, what: Collection[str]) -> str:
  """Strips parts of a program.

  Args:
    code: the program.
    what: a subset of `STRIPPED`. `comments` covers comments and docstrings;
      `globals` covers module-level statements except imports, functions and
      classes.

  Returns:
    The stripped program. Text that cannot be parsed or rewritten is returned
    unchanged, and validation rejects it.
  """
  if not what:
    return code
  try:
    tree = literals.guarded_parse(code, "exec")
    assert isinstance(tree, ast.Module)
    return _stripped(tree, what)
  # Integers too long to print also raise ValueError.
  except (ValueError, RecursionError):
    return code


def _stripped(tree: ast.Module, what: Collection[str]) -> str:
  kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
  if "globals" in what:
    tree.body = [node for node in tree.body if isinstance(node, kept)]
  for node in ast.walk(tree) if "comments" in what else ():
    if isinstance(node, _WITH_DOCSTRINGS):
      rest = [one for one in node.body if not _is_text(one)]
      node.body = rest or [ast.Pass()]
  return write(tree)


def _is_text(node: ast.stmt) -> bool:
  """Returns whether a statement is a text, such as a docstring."""
  return (
    isinstance(node, ast.Expr)
    and isinstance(node.value, ast.Constant)
    and isinstance(node.value.value, str)
  )


def write(tree: ast.Module) -> str:
  """Returns the source of a tree, indented by two spaces."""
  # Halve leading spaces only; those elsewhere are not indentation.
  return re.sub(
    "^(?:    )+", lambda run: run[0][::2], ast.unparse(tree), flags=re.MULTILINE
  )
