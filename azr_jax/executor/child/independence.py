"""Decides whether a program can tell its calls apart.

The calls of a job share a process where possible, because a process per call
costs several times as much. A program's own state does not outlive a call
(`program.py`), but state of the process does: a program could count its calls
in an attribute of a library class, or read the other inputs in its callers'
frames.

`are_independent` returns True only if the syntax tree shows that a program does
nothing of the kind. Any other program gets a process per call. The rules allow
only what is known to be harmless:

* builtins, except those that reach objects or namespaces by name or build
  classes;
* the names in `_LIBRARY`. No mutable object of a library may be used as a
  value, so functions and classes written in Python may only be called or used
  as decorators;
* attributes, except special ones and those of frames, code and tracebacks.

One leak is known: the default `repr` of an object contains its address, which
depends on earlier allocations in the process.
"""

import ast
import builtins
import cmath
import functools
import itertools
import math
import operator
import re
import statistics
import string
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import TypeGuard

# How a name may be used.
_ANY, _CALLED, _DECORATOR, _ANNOTATION = range(4)


def _kinds(kind: int, names: str) -> dict[str, int]:
  return dict.fromkeys(names.split(), kind)


def _public(module: ModuleType, *but: str) -> dict[str, int]:
  """Returns the public names of a module written in C."""
  names = {name for name in vars(module) if not name.startswith("_")}
  return dict.fromkeys(names.difference(but), _ANY)


_LIBRARY = {
  "__future__": _kinds(_ANY, "annotations"),
  "bisect": _kinds(
    _ANY, "bisect bisect_left bisect_right insort insort_left insort_right"
  ),
  "cmath": _public(cmath),
  "collections": _kinds(_ANY, "deque defaultdict OrderedDict")
  | _kinds(_CALLED, "Counter namedtuple"),
  "copy": _kinds(_CALLED, "copy deepcopy"),
  "dataclasses": _kinds(_DECORATOR, "dataclass"),
  "decimal": _kinds(_ANY, "Decimal"),
  "fractions": _kinds(_CALLED, "Fraction"),
  "functools": _kinds(_ANY, "partial reduce")
  | _kinds(_CALLED, "cmp_to_key")
  | _kinds(_DECORATOR, "cache lru_cache"),
  "heapq": _kinds(_ANY, "heapify heappop heappush heappushpop heapreplace")
  | _kinds(_CALLED, "merge nlargest nsmallest"),
  "itertools": _public(itertools),
  "math": _public(math),
  "operator": {
    name: _ANY
    for name in operator.__all__
    if name not in ("attrgetter", "methodcaller")
  },
  "random": _kinds(_CALLED, "Random"),
  "re": _kinds(
    _CALLED,
    "compile escape findall finditer fullmatch match search split sub subn",
  ),
  "statistics": dict.fromkeys(
    set(statistics.__all__) - {"NormalDist", "StatisticsError"}, _CALLED
  ),
  "string": {
    name: _ANY
    for name, value in vars(string).items()
    if isinstance(value, str) and not name.startswith("_")
  },
  "typing": _kinds(
    _ANNOTATION,
    "Any Callable Deque DefaultDict Dict FrozenSet Generator Hashable Iterable "
    "Iterator List Mapping Optional Sequence Set Tuple Type Union",
  ),
}
# The names that inputs may use, as in `arguments.py`.
_OF_INPUTS = {
  name: _LIBRARY[module][name]
  for module, name in (
    ("collections", "Counter"),
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("collections", "deque"),
    ("decimal", "Decimal"),
    ("fractions", "Fraction"),
  )
}
_MODULES_OF_INPUTS: dict[str, str] = {
  name: name
  for name in "cmath collections decimal fractions functools itertools math "
  "string".split()
}
_EXCEPTIONS = {
  name
  for name, value in vars(builtins).items()
  if isinstance(value, type) and issubclass(value, BaseException)
}
_BUILTINS = _EXCEPTIONS.union(
  "Ellipsis False None NotImplemented True abs all any ascii bin bool "
  "bytearray bytes callable chr classmethod complex dict divmod enumerate "
  "filter float format frozenset hasattr hex int isinstance issubclass iter "
  "len list map max min next object oct ord pow print property range repr "
  "reversed round set slice sorted staticmethod str sum super tuple zip".split()
)
_SPECIAL = frozenset(
  f"__{name}__"
  for name in (
    "abs add and bool call contains delitem enter eq exit float floordiv ge "
    "getitem gt hash iadd init int invert iter le len lshift lt main missing "
    "mod mul name ne neg next or pos post_init pow radd repr reversed rmul "
    "rshift rsub setitem str sub truediv xor"
  ).split()
)
# Attributes of generators, coroutines, frames, tracebacks and code.
_PREFIXES = ("ag_", "co_", "cr_", "f_", "gi_", "tb_")
# `format` reads attributes by name, `mro` returns classes, `pattern` and `re`
# reveal whether a regular expression was in the cache, and the last one warns
# once in a process.
_ATTRIBUTES = frozenset(
  "format format_map mro pattern re _randbelow_without_getrandbits".split()
)
_REFUSED_NODES = (
  ast.AsyncFor,
  ast.AsyncFunctionDef,
  ast.AsyncWith,
  ast.Await,
)
# Words that are refused, or allowed only in some places. A digit may directly
# precede a keyword (`1if x else y`), but not a name.
_WORD = re.compile(r"[A-Za-z_]\w*")
_DOUBTFUL_START = re.compile(rf"(?<![A-Za-z_])(?:__|{'|'.join(_PREFIXES)})")
_DOUBTFUL = _ATTRIBUTES.union(
  ("import", "class", "async", "await"), set(vars(builtins)) - _BUILTINS
)
_DOUBTFUL_IN_INPUTS = _DOUBTFUL.union(_OF_INPUTS, _MODULES_OF_INPUTS)


def are_independent(code: str, inputs: Iterable[str]) -> bool:
  """Returns whether all calls of a program are independent.

  Most texts contain only words that are allowed everywhere; the others are
  parsed. The result does not matter for text that cannot be parsed, because
  each call then raises SyntaxError.

  Args:
    code: the program.
    inputs: the argument texts of its calls.
  """
  try:
    return (
      _has_plain_words(code, _DOUBTFUL) or _Checker(ast.parse(code)).holds()
    ) and all(
      _has_plain_words(text, _DOUBTFUL_IN_INPUTS)
      or _Checker(
        ast.parse(f"f({text}\n)"), _OF_INPUTS, _MODULES_OF_INPUTS
      ).holds()
      for text in inputs
    )
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return False


def _has_plain_words(text: str, doubtful: frozenset[str]) -> bool:
  """Returns whether a text has no word that `_Checker` might refuse.

  Words in comments and strings count. Only ASCII text qualifies, because
  Python normalizes other letters, so a name can be spelled in several ways.
  """
  return (
    text.isascii()
    and _DOUBTFUL_START.search(text) is None
    and doubtful.isdisjoint(_WORD.findall(text))
  )


class _Checker:
  """Checks one syntax tree."""

  def __init__(
    self,
    tree: ast.AST,
    names: dict[str, int] | None = None,
    modules: dict[str, str] | None = None,
  ) -> None:
    """Collects the nodes of a tree and their parents.

    Args:
      tree: the syntax tree.
      names: predefined names, with the way each may be used.
      modules: predefined modules, by the name they are bound to.
    """
    self._names = dict(names or {})
    self._modules = dict(modules or {})
    self._nodes = list(ast.walk(tree))
    self._parents = {
      child: node
      for node in self._nodes
      for child in ast.iter_child_nodes(node)
    }

  def holds(self) -> bool:
    """Returns whether every node is allowed."""
    imports = (ast.Import, ast.ImportFrom)
    return all(
      self._imports(node) for node in self._nodes if isinstance(node, imports)
    ) and all(map(self._allows, self._nodes))

  def _imports(self, node: ast.Import | ast.ImportFrom) -> bool:
    """Records the names that an import binds; returns whether it is allowed."""
    if isinstance(node, ast.Import):
      for alias in node.names:
        if alias.name not in _LIBRARY:
          return False
        name = alias.asname or alias.name
        if self._modules.setdefault(name, alias.name) != alias.name:
          return False
      return True
    kinds = {} if node.level else _LIBRARY.get(node.module or "", {})
    for alias in node.names:
      if alias.name not in kinds:
        return False
      # A name that is bound twice must allow the same use both times.
      name, kind = alias.asname or alias.name, kinds[alias.name]
      if self._names.setdefault(name, kind) != kind:
        return False
    return True

  def _allows(self, node: ast.AST) -> bool:
    """Returns whether a node is allowed."""
    if isinstance(node, _REFUSED_NODES):
      return False
    if isinstance(node, ast.Name):
      return self._allows_name(node)
    if isinstance(node, ast.Attribute):
      return self._allows_attribute(node)
    if isinstance(node, ast.ClassDef) and node.keywords:
      return False
    if isinstance(node, ast.MatchClass):
      return all(_is_plain(n) and _is_public(n) for n in node.kwd_attrs)
    return all(map(_is_plain, _identifiers(node)))

  def _allows_name(self, node: ast.Name) -> bool:
    name = node.id
    if not _is_plain(name):
      return False
    if name in self._modules:
      # A module's attributes may be read, but it may not be passed around.
      parent = self._parents[node]
      return isinstance(parent, ast.Attribute)
    if name in self._names:
      return self._allows_use(node, self._names[name])
    if name == "type":
      return self._asks_for_type(node)
    return name in _BUILTINS or not hasattr(builtins, name)

  def _allows_attribute(self, node: ast.Attribute) -> bool:
    name = node.attr
    if isinstance(node.value, ast.Name) and node.value.id in self._modules:
      kinds = _LIBRARY[self._modules[node.value.id]]
      is_read = isinstance(node.ctx, ast.Load)
      return is_read and name in kinds and self._allows_use(node, kinds[name])
    if name == "format" and isinstance(node.value, ast.Constant):
      return isinstance(node.value.value, str) and _has_plain_fields(
        node.value.value
      )
    return _is_plain(name) and _is_public(name)

  def _allows_use(self, node: ast.AST, kind: int) -> bool:
    """Returns whether a library's name is used in an allowed way."""
    if kind == _ANNOTATION:
      return self._is_annotation(node)
    if kind == _ANY:
      return True
    parent = self._parents[node]
    is_called = isinstance(parent, ast.Call) and parent.func is node
    if kind == _CALLED:
      return is_called
    if is_called:  # A decorator with arguments: `@lru_cache(maxsize=None)`.
      node, parent = parent, self._parents[parent]
    return isinstance(parent, ast.FunctionDef | ast.ClassDef) and (
      node in parent.decorator_list
    )

  def _asks_for_type(self, node: ast.Name) -> bool:
    """Returns whether `type` is in `type(x) == int` or `type(x).__name__`.

    A type may only be compared with types. Any other object could keep it:
    `type(x) == y` calls `y.__eq__`, and `type(x) in y` calls `y.__contains__`.
    """
    call = self._parents[node]
    if not _is_call_of_type(call) or call.func is not node:
      return False
    user = self._parents[call]
    while isinstance(user, ast.Tuple | ast.List | ast.Set):
      user = self._parents[user]
    if isinstance(user, ast.Attribute):
      return user.attr == "__name__" and isinstance(user.ctx, ast.Load)
    return isinstance(user, ast.Compare) and all(
      map(self._is_type, (user.left, *user.comparators))
    )

  def _is_type(self, node: ast.expr) -> bool:
    """Returns whether an expression is a type, or a display of types."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
      return all(map(self._is_type, node.elts))
    if isinstance(node, ast.Name):
      return node.id in self._types
    return _is_call_of_type(node)

  def _is_annotation(self, node: ast.AST) -> bool:
    """Returns whether a name of `typing` is in an annotation of plain names.

    `typing` caches its arguments, so an argument whose `__eq__` the program
    defines would be compared with one from an earlier call.
    """
    while True:
      parent = self._parents.get(node)
      if isinstance(parent, ast.arg | ast.AnnAssign):
        return node is parent.annotation and self._has_plain_names(node)
      if isinstance(parent, ast.FunctionDef):
        return node is parent.returns and self._has_plain_names(node)
      if not isinstance(parent, ast.expr):
        return False
      node = parent

  def _has_plain_names(self, annotation: ast.AST) -> bool:
    plain = (
      ast.Attribute,
      ast.BinOp,
      ast.BitOr,
      ast.Constant,
      ast.List,
      ast.Load,
      ast.Name,
      ast.Subscript,
      ast.Tuple,
    )
    return all(
      isinstance(part, plain)
      and (
        not isinstance(part, ast.Name)
        or part.id in self._names
        or part.id in self._modules
        or part.id in self._types
      )
      for part in ast.walk(annotation)
    )

  @functools.cached_property
  def _types(self) -> set[str]:
    """Builtins and undecorated classes whose names nothing else binds."""
    classes: set[str] = set()
    others: set[str] = set()
    for node in self._nodes:
      if isinstance(node, ast.ClassDef):
        (others if node.decorator_list else classes).add(node.name)
      elif isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
          others.add(node.id)
      else:
        others.update(_identifiers(node))
    return (classes | _BUILTINS) - others


def _is_call_of_type(node: ast.AST) -> TypeGuard[ast.Call]:
  """Returns whether an expression is `type(x)` with one argument."""
  return (
    isinstance(node, ast.Call)
    and isinstance(node.func, ast.Name)
    and node.func.id == "type"
    and len(node.args) == 1
    and not node.keywords
    and not isinstance(node.args[0], ast.Starred)
  )


def _identifiers(node: ast.AST) -> Iterator[str]:
  """Yields the identifiers in the fields of a node."""
  if isinstance(node, ast.Constant | ast.ImportFrom | ast.alias):
    return
  for _, value in ast.iter_fields(node):
    if isinstance(value, str):
      yield value
    elif isinstance(value, list):
      yield from (item for item in value if isinstance(item, str))


def _is_plain(name: str) -> bool:
  """Returns whether a name is not special, or is one of `_SPECIAL`."""
  is_special = name.startswith("__") and name.endswith("__")
  return not is_special or name in _SPECIAL


def _is_public(name: str) -> bool:
  return name not in _ATTRIBUTES and not name.startswith(_PREFIXES)


def _has_plain_fields(text: str) -> bool:
  """Returns whether no field of a format string reads attributes or items."""
  try:
    for _, field, spec, _ in string.Formatter().parse(text):
      if field and ("." in field or "[" in field):
        return False
      if spec and not _has_plain_fields(spec):
        return False
  except ValueError:
    return False
  return True
