"""The key of a program: the same for programs that differ in names alone."""

import ast
import functools
import hashlib

from azr_jax.executor import literals


@functools.lru_cache(maxsize=1024)
def program_key(code: str) -> str:
  """A hash of the program that ignores names, comments and layout.

  Variables, arguments and functions are numbered in order of appearance;
  attributes, constants and structure count. Text that does not parse, or is
  too deep, is hashed as it is.
  """
  try:
    text = _canonical_text(code)
  except (ValueError, RecursionError):  # Integers too long to write, too.
    text = code
  return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _canonical_text(code: str) -> str:
  tree = literals.guarded_parse(code, "exec")
  defined = _defined_names(tree)
  numbers: dict[str, str] = {}

  def canonical(name: str) -> str:
    if name not in defined:
      return name
    return numbers.setdefault(name, f"name{len(numbers)}")

  for node in ast.walk(tree):
    if isinstance(node, ast.Name):
      node.id = canonical(node.id)
    elif isinstance(node, ast.arg):
      node.arg = canonical(node.arg)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
      node.name = canonical(node.name)
  return ast.dump(tree)


def _defined_names(tree: ast.AST) -> set[str]:
  """Names that the program itself binds, as against builtins."""
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      names.add(node.id)
    elif isinstance(node, ast.arg):
      names.add(node.arg)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
      names.add(node.name)
  return names
