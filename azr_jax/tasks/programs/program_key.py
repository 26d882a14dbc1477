"""Keys of programs, equal for programs that differ only in names or layout."""

import ast
import functools
import hashlib

from azr_jax.executor import literals


@functools.lru_cache(maxsize=1024)
def program_key(code: str) -> str:
  """Returns a hash of a program that ignores names, comments and layout.

  Variables, arguments, functions and classes are renamed by their order of
  appearance. Attributes, constants and structure matter. A text that does not
  parse or is nested too deeply is hashed as it is.
  """
  try:
    text = _canonical_text(code)
  except (ValueError, RecursionError):  # Also raised for huge integers.
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
  return _dump(tree)


def _dump(value: object) -> str:
  """Dumps a syntax tree as text that is the same in every version of Python.

  The output of `ast.dump` depends on the version. Here, absent optional fields
  are left out, and so are empty type parameters, which Python 3.12 added.
  """
  if isinstance(value, list):
    return f"[{', '.join(map(_dump, value))}]"
  if not isinstance(value, ast.AST):
    return repr(value)
  fields = []
  for name in value._fields:
    field = getattr(value, name)
    is_absent = field is None and getattr(type(value), name, ...) is None
    if not is_absent and (name, field) != ("type_params", []):
      fields.append(f"{name}={_dump(field)}")
  return f"{type(value).__name__}({', '.join(fields)})"


def _defined_names(tree: ast.AST) -> set[str]:
  """Returns the names that a program binds, as opposed to builtins."""
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      names.add(node.id)
    elif isinstance(node, ast.arg):
      names.add(node.arg)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
      names.add(node.name)
  return names
