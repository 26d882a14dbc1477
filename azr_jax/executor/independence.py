"""Decides whether a program can tell one of its calls from another.

The calls of a job share a process, because a process for each costs several
times as much. A program's own state does not outlive a call (`program.py`), but
that of the process does: a program could count its calls in an attribute of a
module, or read the other inputs in its callers' frames. `are_independent` holds
only for programs whose text shows that they do nothing of the kind. Any other
program gets a process for each call.

The test is one of words and of the syntax tree, and errs on the side of a
process. A program may use most builtins, and of the modules in `_MODULES`
functions, classes and constants. It may not reach a namespace, a frame or code
by a name (`_WORDS`, names with `__`), store an attribute if it imports
anything, or pass a module on. Inputs may call a few constructors only.
"""

import ast
import itertools
import re
import sys
import types

# Functions and classes of these change nothing that outlives a call.
_MODULES = frozenset(
  "bisect cmath collections copy fractions functools heapq itertools math "
  "operator re statistics string typing".split()
)
# Words of programs that reach state which outlives a call, or that may: names
# of namespaces, frames and addresses, and functions that take names or change
# what they are given.
_WORDS = frozenset(
  "getattr setattr delattr vars globals locals eval exec compile id hash "
  "format format_map attrgetter methodcaller Formatter register overload "
  "get_overloads clear_overloads get_type_hints ForwardRef update_wrapper "
  "wraps total_ordering singledispatch singledispatchmethod NormalDist purge "
  "gi_frame gi_yieldfrom gi_code cr_frame cr_await cr_code ag_frame ag_await "
  "ag_code tb_frame tb_next f_back f_locals f_globals f_builtins f_code "
  "mro".split()
)
_SPECIAL_METHODS = frozenset(
  f"__{name}__"
  for name in (
    "abs add and bool call contains delitem enter eq exit float floordiv ge "
    "getitem gt iadd init int invert iter le len lshift lt main missing mod "
    "mul name ne neg next or pos pow radd repr reversed rmul rshift rsub "
    "setitem str sub truediv xor"
  ).split()
)
_WORD = re.compile(r"[A-Za-z_]\w*")
# The names of private attributes and methods; those of named tuples are public.
_PRIVATE = re.compile(r"\._(?!(?:asdict|fields|make|replace)\b)")
_CALL = re.compile(r"([\w)\]}'\"]*)\s*\(")
_CONSTRUCTORS = frozenset(
  "bytes complex deque defaultdict dict float frozenset list OrderedDict range "
  "set tuple".split()
)
# Names of `arguments.py` that lead to what a program could change, such as the
# attributes of a class that is written in Python.
_CHANGEABLE = frozenset(
  "Counter Decimal Fraction cmath collections decimal fractions functools "
  "itertools math string".split()
)
_CONSTANTS = (
  type,
  types.FunctionType,
  types.BuiltinFunctionType,
  int,
  float,
  complex,
  str,
)


def are_independent(code, inputs):
  """Returns whether no call of a program can depend on another one.

  Args:
    code: the program.
    inputs: the argument texts of its calls.
  """
  if not code.isascii() or not all(map(_only_constructs, inputs)):
    return False
  for word in set(_WORD.findall(code)):
    if word in _WORDS or ("__" in word and word not in _SPECIAL_METHODS):
      return False
  if "import" not in code:
    return True
  return not _PRIVATE.search(code) and _uses_modules_plainly(code)


def _only_constructs(text):
  """Returns whether an input calls nothing but constructors of C's types."""
  if not _CHANGEABLE.isdisjoint(_WORD.findall(text)):
    return False
  if "(" not in text:
    return True
  called = _CALL.findall(text)
  return text.isascii() and all(
    not name or name in _CONSTRUCTORS for name in called
  )


def _uses_modules_plainly(code):
  """Returns whether a program neither changes nor passes on what it imports."""
  try:
    nodes = list(ast.walk(ast.parse(code)))
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return False
  modules = {}
  for node in nodes:
    if isinstance(node, ast.ImportFrom) and not _are_constants(node):
      return False
    if isinstance(node, ast.Import):
      for alias in node.names:
        if alias.name not in _MODULES:
          return False
        modules[alias.asname or alias.name] = sys.modules[alias.name]
  attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
  of_modules = [
    (modules[node.value.id], node.attr)
    for node in attributes
    if isinstance(node.value, ast.Name) and node.value.id in modules
  ]
  names = [getattr(node, "id", None) in modules for node in nodes]
  return (
    all(isinstance(node.ctx, ast.Load) for node in attributes)
    and all(itertools.starmap(_is_constant, of_modules))
    and sum(names) == len(of_modules)  # No module is passed on.
  )


def _are_constants(node):
  """Returns whether `from module import names` imports what nobody changes."""
  if node.level or node.module not in (
    *_MODULES,
    "collections.abc",
    "__future__",
  ):
    return False
  module = sys.modules.get(node.module)
  return all(_is_constant(module, alias.name) for alias in node.names)


def _is_constant(module, name):
  """Returns whether a module's attribute is no module and no container."""
  value = getattr(module, name, None)
  return (
    isinstance(value, _CONSTANTS)
    or (module.__name__ == "typing" and hasattr(value, "__origin__"))
    or type(value).__module__ in ("typing", "__future__")
  )
