"""Parses and compares values written as text; nothing is evaluated.

`typed_key` maps the text of a value to a hashable key. Two texts denote the
same value exactly if their keys are equal:

| texts | equal? |
| --- | --- |
| `1`, `1.0`, `True` | no: types differ |
| `[1]`, `(1,)` | no |
| `{1, 2}`, `{2, 1}` | yes: sets and dict keys have no order |
| `float('nan')`, `float('nan')` | yes |
| `0.0`, `-0.0` | yes, as in Python |
| `1 + 1`, `f(2)`, `x` | not values: only literals and some constructors are |

Keys hold numbers as strings. Python salts the hash of a string, but anyone can
write thousands of numbers with the same hash, and a set of them takes quadratic
time. The strings are hexadecimal: that conversion is linear, decimal is not.

`comparison.py` also runs this file inside the sandbox. So this file imports
only the standard library and `source_limits`, which imports nothing else.
"""

import ast
import threading
import warnings
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from azr_jax.executor import source_limits
from azr_jax.executor.source_limits import ParseError as ParseError

# `Fraction` and `Decimal` take quadratic time in the length of an int. Python
# prints no int of more than 4300 decimal digits, so no real value needs more.
MAX_RATIO_BITS = 16 * 1024
# `catch_warnings` changes the whole process. Before Python 3.13, concurrent
# parsing may also raise SystemError, because the threads share a counter.
_PARSER_LOCK = threading.Lock()


def parse(text: str, mode: str = "exec") -> Any:
  """Parses trusted text as `ast.parse` does, one thread at a time."""
  with _PARSER_LOCK, warnings.catch_warnings():
    warnings.simplefilter("ignore")
    return ast.parse(text, mode=mode)


def literal_value(text: str) -> Any:
  """Returns the value of a trusted literal, as `ast.literal_eval` does."""
  return ast.literal_eval(parse(text.strip(), "eval"))


def guarded_parse(text: str, mode: str) -> ast.AST:
  """Parses untrusted text, without running it.

  `source_limits` checks the text first, because some text crashes the C parser,
  and with it the process, or keeps it busy for hours.

  Args:
    text: the source.
    mode: `eval` or `exec`, as for `ast.parse`.

  Raises:
    ParseError: the text exceeds a limit, or is not Python.
  """
  source_limits.check(text)
  try:
    return parse(text, mode)
  except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
    raise ParseError(type(error).__name__) from None


def typed_key(text: str) -> Hashable:
  """Returns the key of a value's text; equal values have equal keys.

  Raises:
    ParseError: the text is not a literal or one of `CONSTRUCTORS`.
  """
  tree = guarded_parse(text.strip(), "eval")
  assert isinstance(tree, ast.Expression)
  return node_key(tree.body)


def node_key(node: ast.expr) -> Hashable:
  """Returns the key of a parsed value.

  Raises:
    ParseError: the node is not a literal or one of `CONSTRUCTORS`.
  """
  try:
    return _key(node)
  except RecursionError:
    raise ParseError("too deep") from None
  except OverflowError:  # The int in a complex number does not fit a float.
    raise ParseError("too large") from None


def has_comment(text: str) -> bool:
  """Returns whether a value's text contains a comment."""
  return "#" in text and "#" in source_limits.STRING.sub("''", text)


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
  if isinstance(value, bool | str | bytes) or value is None:
    return (type(value).__name__, value)
  if isinstance(value, int):
    return _int_key(value)
  if isinstance(value, float):
    return _float_key(value)
  if isinstance(value, complex):
    return ("complex", _float_key(value.real), _float_key(value.imag))
  raise ParseError(f"{type(value).__name__} is not a value")


def _int_key(value: int) -> Hashable:
  return ("int", hex(value))


def _float_key(value: float) -> Hashable:
  return ("float", (value + 0.0).hex())  # Adding 0.0 turns -0.0 into 0.0.


def _signed_key(node: ast.expr) -> Hashable:
  sign = 1
  while isinstance(node, ast.UnaryOp):
    if not isinstance(node.op, ast.USub | ast.UAdd):
      raise ParseError(f"{type(node.op).__name__} is not a sign")
    sign = -sign if isinstance(node.op, ast.USub) else sign
    node = node.operand
  match _key(node):
    case ("int", str(value)):
      return _int_key(sign * int(value, 16))
    case ("float", str(value)):
      return _float_key(sign * float.fromhex(value))
    case ("complex", ("float", str(real)), ("float", str(imaginary))) if (
      "nan" not in (real, imaginary)
    ):
      parts = (float.fromhex(part) for part in (real, imaginary))
      return ("complex", *(_float_key(sign * part) for part in parts))
  raise ParseError("a sign before something that is not a number")


def _dict_key(node: ast.Dict) -> Hashable:
  items: dict[Hashable, Hashable] = {}
  for key, value in zip(node.keys, node.values, strict=True):
    if key is None:
      raise ParseError("** is not a literal")
    items[_key(key)] = _key(value)
  return frozenset(items.items())


def _complex_key(node: ast.BinOp) -> Hashable:
  """Returns the key of `1+2j`, which is how Python prints a complex number."""
  if not isinstance(node.op, ast.Add | ast.Sub):
    raise ParseError(f"{type(node.op).__name__} is not a literal")
  sign = 1 if isinstance(node.op, ast.Add) else -1
  match _key(node.left), _key(node.right):
    case (
      ("int" | "float" as kind, str(real)),
      ("complex", _, ("float", str(imaginary))),
    ) if "nan" not in (real, imaginary):
      value = float(int(real, 16)) if kind == "int" else float.fromhex(real)
      return (
        "complex",
        _float_key(value),
        _float_key(sign * float.fromhex(imaginary)),
      )
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
    case [("int", str(numerator)), ("int", str(denominator))] if (
      denominator != "0x0"
    ):
      value = Fraction(_short_int(numerator), _short_int(denominator))
      return ("Fraction", hex(value.numerator), hex(value.denominator))
    case [("int", str(numerator))]:
      return ("Fraction", numerator, "0x1")
  raise ParseError("Fraction() takes one or two ints")


def _make_decimal(arguments: list[Hashable]) -> Hashable:
  match arguments:
    case [("str" | "int" as kind, str(value))]:
      try:
        number = Decimal(value if kind == "str" else _short_int(value))
      except InvalidOperation:
        raise ParseError("Decimal() takes a number") from None
      return ("Decimal", _decimal_text(number))
  raise ParseError("Decimal() takes one text or int")


def _short_int(text: str) -> int:
  value = int(text, 16)
  if value.bit_length() > MAX_RATIO_BITS:
    raise ParseError(
      f"an int of {value.bit_length()} bits; expected at most {MAX_RATIO_BITS}"
    )
  return value


def _decimal_text(number: Decimal) -> str:
  """Returns a string that is the same for equal numbers, e.g. 1.5 and 1.50."""
  if number.is_nan():
    return "nan"
  if number.is_infinite():
    return str(number)
  mantissa, _, exponent = str(number).lstrip("-").partition("E")
  whole, _, fraction = mantissa.partition(".")
  digits = (whole + fraction).lstrip("0")
  kept = digits.rstrip("0")
  power = int(exponent or 0) - len(fraction) + len(digits) - len(kept)
  sign = "-" if number.is_signed() else ""
  return f"{sign}{kept}E{power}" if kept else "0"


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


def compare_runs(
  runs: Sequence[Sequence[str | None]],
) -> tuple[bool, bool]:
  """Compares the outputs of a program's independent runs.

  Args:
    runs: the outputs of each run: the text of each call's value, or None
      without a value.

  Returns:
    Whether all outputs of the first run are values without comments, and
    whether the other runs' outputs equal them.
  """
  first, *others = runs
  keys = [_value_key(text) for text in first]
  are_values = all(
    key is not None and not has_comment(text or "")
    for key, text in zip(keys, first, strict=True)
  )
  are_equal = all(
    text == other_text or (key is not None and key == _value_key(other_text))
    for other in others
    for text, key, other_text in zip(first, keys, other, strict=True)
  )
  return are_values, are_equal


def _value_key(text: str | None) -> Hashable | None:
  """Returns the key of a value, or None if the text is not a value."""
  try:
    return None if text is None else typed_key(text)
  except ParseError:
    return None
