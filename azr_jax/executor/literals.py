"""Reads and compares typed values as text; nothing is evaluated.

`typed_key` maps the text of a value to a hashable key. Two texts are the same
value exactly if their keys are equal:

| texts | equal? |
| --- | --- |
| `1`, `1.0`, `True` | no: types count |
| `[1]`, `(1,)` | no |
| `{1, 2}`, `{2, 1}` | yes: sets and dict keys have no order |
| `float('nan')`, `float('nan')` | yes |
| `0.0`, `-0.0` | yes, as in Python |
| `1 + 1`, `f(2)`, `x` | no value: only literals and a closed constructor list |
"""

import ast
import math
import re
import threading
import warnings
from collections.abc import Callable, Hashable
from decimal import Decimal, InvalidOperation
from fractions import Fraction

MAX_CHARS = 256 * 1024
# Canonical text needs 129 open brackets: two at each of 64 levels, and one for
# a number such as `float('nan')`. A call around it makes 130. CPython's
# tokenizer allows 200.
MAX_DEPTH = 130
MAX_SIGN_RUN = 64
# A string, closed or not. It never fails after a quote, so the scan is linear.
_STRING = re.compile(
  r"""'''(?:[^'\\]|\\.|'(?!''))*+(?:''')?"""
  r'''|"""(?:[^"\\]|\\.|"(?!""))*+(?:""")?'''
  r"""|'(?:[^'\\\n]|\\.)*+'?"""
  r"""|"(?:[^"\\\n]|\\.)*+"?""",
  re.DOTALL,
)
# A bracket, a sign, or other text, which ends a run of signs.
_SYMBOL = re.compile(r"[(\[{)\]}+\-~]|[^()\[\]{}+\-~\s]+")
_WARNINGS_LOCK = threading.Lock()  # catch_warnings changes the whole process.


class ParseError(ValueError):
  """The text is too large, too deep, or not Python of the allowed kind."""


def guarded_parse(text: str, mode: str) -> ast.AST:
  """Parses untrusted text, without running it.

  Size, bracket depth and runs of signs are checked first, because such text
  can crash the C parser and with it the process.

  Args:
    text: the source.
    mode: `eval` or `exec`, as of `ast.parse`.

  Raises:
    ParseError: the text is too large, too deep, or not Python.
  """
  _check_size(text)
  try:
    with _WARNINGS_LOCK, warnings.catch_warnings():
      warnings.simplefilter("ignore")
      return ast.parse(text, mode=mode)
  except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
    raise ParseError(type(error).__name__) from None


def _check_size(text: str) -> None:
  if len(text) > MAX_CHARS:
    raise ParseError(f"{len(text)} characters; expected at most {MAX_CHARS}")
  if _is_shallow(text):
    return
  # Brackets and signs inside strings do not nest.
  if not _is_shallow(_STRING.sub("''", text)):
    raise ParseError("too many open brackets or signs in a row")


def _is_shallow(text: str) -> bool:
  depth = run = 0
  for symbol in _SYMBOL.findall(text):
    if symbol in "+-~":
      run += 1
      if run > MAX_SIGN_RUN:
        return False
      continue
    run = 0
    if symbol in "([{":
      depth += 1
      if depth > MAX_DEPTH:
        return False
    elif symbol in ")]}":
      depth -= 1
  return True


def typed_key(text: str) -> Hashable:
  """Returns the key of a value's text; equal values have equal keys.

  Raises:
    ParseError: the text is not a literal or a listed constructor.
  """
  tree = guarded_parse(text.strip(), "eval")
  assert isinstance(tree, ast.Expression)
  return node_key(tree.body)


def node_key(node: ast.expr) -> Hashable:
  """Returns the key of a parsed value.

  Raises:
    ParseError: the node is not a literal or a listed constructor.
  """
  try:
    return _key(node)
  except RecursionError:
    raise ParseError("too deep") from None
  except OverflowError:  # A complex number has an int that no float holds.
    raise ParseError("too large") from None


def has_comment(text: str) -> bool:
  """Returns whether a value's text has a comment."""
  return "#" in _STRING.sub("''", text)


def _key(node: ast.expr) -> Hashable:
  if isinstance(node, ast.Constant):
    return _constant_key(node.value)
  if isinstance(node, ast.UnaryOp):
    return _signed_key(node)
  if isinstance(node, ast.List):
    return ("list", tuple(_key(item) for item in node.elts))
  if isinstance(node, ast.Tuple):
    return ("tuple", tuple(_key(item) for item in node.elts))
  if isinstance(node, ast.Set):
    return ("set", frozenset(_key(item) for item in node.elts))
  if isinstance(node, ast.Dict):
    return ("dict", _dict_key(node))
  if isinstance(node, ast.Call):
    return _constructor_key(node)
  if isinstance(node, ast.BinOp):
    return _complex_key(node)
  raise ParseError(f"{type(node).__name__} is not a literal")


def _constant_key(value: object) -> Hashable:
  if isinstance(value, bool | int | str | bytes) or value is None:
    return (type(value).__name__, value)
  if isinstance(value, float):
    return _float_key(value)
  if isinstance(value, complex):
    return ("complex", _float_key(value.real), _float_key(value.imag))
  raise ParseError(f"{type(value).__name__} is not a value")


def _float_key(value: float) -> Hashable:
  if math.isnan(value):
    return ("float", "nan")
  return ("float", value)


def _signed_key(node: ast.UnaryOp) -> Hashable:
  if not isinstance(node.op, ast.USub | ast.UAdd):
    raise ParseError(f"{type(node.op).__name__} is not a sign")
  sign = -1 if isinstance(node.op, ast.USub) else 1
  match _key(node.operand):
    case ("int" | "float" as kind, int() | float() as value):
      return (kind, sign * value)
    case ("float", "nan"):
      return ("float", "nan")
    case ("complex", ("float", float(real)), ("float", float(imaginary))):
      return ("complex", ("float", sign * real), ("float", sign * imaginary))
  raise ParseError("a sign before something that is no number")


def _dict_key(node: ast.Dict) -> Hashable:
  items: dict[Hashable, Hashable] = {}
  for key, value in zip(node.keys, node.values, strict=True):
    if key is None:
      raise ParseError("** is not a literal")
    items[_key(key)] = _key(value)
  return frozenset(items.items())


def _complex_key(node: ast.BinOp) -> Hashable:
  """Returns the key of `1+2j`, the form in which Python writes complex."""
  if not isinstance(node.op, ast.Add | ast.Sub):
    raise ParseError(f"{type(node.op).__name__} is not a literal")
  sign = 1 if isinstance(node.op, ast.Add) else -1
  match _key(node.left), _key(node.right):
    case (
      ("int" | "float", int() | float() as real),
      ("complex", _, ("float", float(imaginary))),
    ):
      return ("complex", _float_key(float(real)), ("float", sign * imaginary))
  raise ParseError("BinOp is not a literal")


def _constructor_key(node: ast.Call) -> Hashable:
  if not isinstance(node.func, ast.Name) or node.keywords:
    raise ParseError("a call is not a literal")
  make = CONSTRUCTORS.get(node.func.id)
  if make is None or len(node.args) > 2:
    raise ParseError(f"call of {node.func.id} is not a literal")
  return make([_key(argument) for argument in node.args])


def _elements(arguments: list[Hashable]) -> tuple[Hashable, ...]:
  if not arguments:
    return ()
  argument = arguments[0]
  if len(arguments) == 1 and isinstance(argument, tuple):
    if argument[0] in ("list", "tuple", "set", "frozenset"):
      return tuple(argument[1])
  raise ParseError("expected one literal collection")


def _make_float(arguments: list[Hashable]) -> Hashable:
  match arguments:
    case [("str", str(text))] if text in ("nan", "inf", "-inf", "+inf"):
      return _float_key(float(text))
  raise ParseError("float() takes 'nan' or 'inf'")


def _make_fraction(arguments: list[Hashable]) -> Hashable:
  match arguments:
    case [("int", int(numerator)), ("int", int(denominator))] if denominator:
      value = Fraction(numerator, denominator)
      return ("Fraction", value.numerator, value.denominator)
    case [("int", int(numerator))]:
      return ("Fraction", numerator, 1)
  raise ParseError("Fraction() takes one or two ints")


def _make_decimal(arguments: list[Hashable]) -> Hashable:
  match arguments:
    case [("str" | "int", str() | int() as value)]:
      try:
        number = Decimal(value)
      except InvalidOperation:
        raise ParseError("Decimal() takes a number") from None
      return ("Decimal", "nan" if number.is_nan() else number)
  raise ParseError("Decimal() takes one text or int")


def _make_complex(arguments: list[Hashable]) -> Hashable:
  match arguments:
    case [("float", _), ("float", _)]:
      return ("complex", *arguments)
  raise ParseError("complex() takes two floats")


def _make_counter(arguments: list[Hashable]) -> Hashable:
  match arguments:
    case []:
      return ("Counter", frozenset())
    case [("dict", items)]:
      return ("Counter", items)
  raise ParseError("Counter() takes a dict")


def _make_ordered_dict(arguments: list[Hashable]) -> Hashable:
  return ("OrderedDict", _elements(arguments))


CONSTRUCTORS: dict[str, Callable[[list[Hashable]], Hashable]] = {
  "set": lambda a: ("set", frozenset(_elements(a))),
  "frozenset": lambda a: ("frozenset", frozenset(_elements(a))),
  "deque": lambda a: ("deque", _elements(a)),
  "float": _make_float,
  "complex": _make_complex,
  "Fraction": _make_fraction,
  "Decimal": _make_decimal,
  "Counter": _make_counter,
  "OrderedDict": _make_ordered_dict,
}
