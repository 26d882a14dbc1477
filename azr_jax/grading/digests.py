"""Digests of values and printed texts that are too long to send.

Values that are equal in Python have equal digests: `1 == 1.0 == True`, and the
order of a set or dict does not matter. A program can lie about its own digest
but gains nothing, because it does not know the expected one.

`harness.py` also runs this file in the tested program's process, so it imports
only the standard library.
"""

import collections
import hashlib
import math
import re
from typing import Any

# Possessive quantifiers keep both patterns linear in time.
_INTEGER = r"(?:0|-?[1-9][0-9]*+)"
_INTEGERS = re.compile(f"{_INTEGER}(?: {_INTEGER})*")
_NUMBER = re.compile(
  r"([-+]?)(?=\.?[0-9])([0-9]*+)\.?+([0-9]*+)(?:[eE]([-+]?[0-9]{1,3}))?"
)


def of_value(value: object) -> str:
  """Returns the digest of a value.

  Raises:
    TypeError: a part is not None, bool, int, float, str, bytes, list, tuple,
      set or dict.
    ValueError: a part is NaN, which equals nothing.
  """
  return _hash(_value_text(value, "()"))


def of_json(value: object) -> str:
  """Returns the digest of a value, with tuples counted as lists.

  Raises:
    TypeError, ValueError: see `of_value`.
  """
  return _hash(_value_text(value, "[]"))


def of_printed(text: str) -> str:
  """Returns the digest of a printed text under LiveCodeBench's comparison.

  Whitespace around the text and around each line is ignored. Lines of numbers
  are compared by exact value: `1.50` equals `1.5`.
  """
  lines = (line.strip() for line in text.strip().split("\n"))
  return _hash("\n".join(map(_line_text, lines)))


def _hash(text: str) -> str:
  return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _value_text(value: Any, tuple_brackets: str) -> str:
  # A NumPy integer equals an int, but is not one.
  if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
    value = value.item()
  if not isinstance(value, list | tuple | set | frozenset | dict):
    return _scalar_text(value)
  if isinstance(value, collections.OrderedDict):
    raise TypeError("an OrderedDict has no digest")
  parts = [_value_text(part, tuple_brackets) for part in value]
  if isinstance(value, dict):
    values = [_value_text(part, tuple_brackets) for part in value.values()]
    items = [f"{k}:{v}" for k, v in zip(parts, values, strict=True)]
    return f"{{{','.join(sorted(items))}}}"
  if isinstance(value, set | frozenset):
    return f"<{','.join(sorted(parts))}>"
  first, last = "[]" if isinstance(value, list) else tuple_brackets
  return f"{first}{','.join(parts)}{last}"


def _scalar_text(value: object) -> str:
  if value is None:
    return "None"
  if isinstance(value, int):
    return hex(int(value))
  if isinstance(value, float):
    if math.isnan(value):
      raise ValueError("NaN equals nothing")
    is_whole = math.isfinite(value) and value == int(value)
    return hex(int(value)) if is_whole else float.hex(value)
  if isinstance(value, str):
    return ascii(str.__str__(value))
  if isinstance(value, bytes):
    return bytes.__repr__(value)
  raise TypeError(f"{type(value).__name__} has no digest")


def _line_text(line: str) -> str:
  if _INTEGERS.fullmatch(line):  # Most long outputs are such lines.
    return line
  numbers = []
  for word in line.split():
    number = _NUMBER.fullmatch(word)
    if number is None:
      return line
    numbers.append(_number_text(number))
  return " ".join(numbers)


def _number_text(match: re.Match[str]) -> str:
  """Returns a canonical text of a number; integers keep all digits."""
  sign, whole, fraction, exponent = match.groups()
  digits = (whole + fraction).lstrip("0")
  kept = digits.rstrip("0")
  power = int(exponent or 0) - len(fraction) + len(digits) - len(kept)
  if not kept:
    return "0"
  sign = "-" if sign == "-" else ""
  if power >= 0:
    return sign + kept + "0" * power
  return f"{sign}{kept}E{power}"
