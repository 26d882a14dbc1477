"""Finds forbidden imports in a program's syntax tree.

The rules are about task quality: a program that reads the clock has no
reproducible answer. They do not protect the machine; the sandbox does
(`kernel.py`).
"""

import ast
from collections.abc import Iterable, Sequence

# The modules that a proposed program may not use (AZR, figure 8).
RULES_OF_PROPOSALS = (
  "logging",
  "random",
  "multiprocessing",
  "pebble",
  "subprocess",
  "threading",
  "datetime",
  "time",
  "hashlib",
  "calendar",
  "bcrypt",
  "os.sys",
  "os.path",
  "sys.exit",
  "os.environ",
)
# Builtins that programs do not get.
REMOVED_BUILTINS = ("open", "input", "breakpoint", "help", "exit", "quit")


def forbidden_use(tree: ast.AST, rules: Sequence[str]) -> str | None:
  """Returns the first forbidden module that a tree uses, or None.

  A rule `a` forbids importing a and its submodules. A rule `a.b` forbids
  importing a.b, importing b from a, and the attribute b of an imported a.
  `__import__` and `import_module` with a constant count as imports, even if
  `import_module` was imported under another name.
  """
  nodes = list(ast.walk(tree))
  modules = _imported_names(nodes)
  for node in nodes:
    for name in _used_names(node, modules):
      for rule in rules:
        star = name.endswith(".*") and rule.startswith(name[:-1])
        if star or name == rule or name.startswith(rule + "."):
          return rule
  return None


def _imported_names(nodes: Iterable[ast.AST]) -> dict[str, str]:
  """Returns the dotted name behind each name that an import binds."""
  names: dict[str, str] = {}
  for node in nodes:
    if isinstance(node, ast.Import):
      for alias in node.names:
        top = alias.name.partition(".")[0]
        names[alias.asname or top] = alias.name if alias.asname else top
    elif isinstance(node, ast.ImportFrom):
      for alias in node.names:
        names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
  return names


def _used_names(node: ast.AST, modules: dict[str, str]) -> list[str]:
  """Returns the dotted names that one node imports or accesses."""
  if isinstance(node, ast.Import):
    return [alias.name for alias in node.names]
  if isinstance(node, ast.ImportFrom):
    return [f"{node.module}.{alias.name}" for alias in node.names]
  if isinstance(node, ast.Attribute):
    name = _dotted(node, modules)
    return [name] if name else []
  if isinstance(node, ast.Call):
    called = getattr(node.func, "id", getattr(node.func, "attr", ""))
    called = modules.get(called, called).rpartition(".")[2]
    if called in ("__import__", "import_module"):
      named = [k.value for k in node.keywords if k.arg == "name"]
      return [str(getattr(a, "value", "")) for a in node.args[:1] + named]
  return []


def _dotted(node: ast.expr, modules: dict[str, str]) -> str | None:
  """Returns the dotted name of an imported module's attribute, or None."""
  parts = []
  while isinstance(node, ast.Attribute):
    parts.append(node.attr)
    node = node.value
  if not isinstance(node, ast.Name) or node.id not in modules:
    return None
  return ".".join([modules[node.id], *reversed(parts)])
