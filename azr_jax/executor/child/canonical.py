"""Writes the canonical text of a value, in the child that computed the value.

Only exact builtin types and a few types of collections, fractions and decimal
have a text. Other types, including subclasses, are refused. This module runs in
the zygote's children, so it imports only the standard library. `literals.py`
parses the texts on the trusted side.
"""

import collections
import decimal
import fractions
import math
from collections.abc import Callable, Iterable
from typing import Any

MAX_DEPTH = 64
MAX_CHARS = 64 * 1024


class Unserializable(ValueError):
  """The value has no canonical text because of its type, depth or size."""


def canonical(value: object) -> str:
  """Returns the canonical text of a value.

  Raises:
    Unserializable: the value has an unknown type, more than `MAX_DEPTH` levels
      (a cycle, for example), or more than `MAX_CHARS` characters.
  """
  writer = _Writer()
  text = writer.text(value, 0)
  if len(text) > MAX_CHARS:
    raise Unserializable("size")
  return text


class _Writer:
  """Writes one value.

  Attributes:
    left: the number of characters that may still be written. It bounds the work
      for a value that contains the same part many times.
  """

  def __init__(self) -> None:
    self.left = MAX_CHARS

  def text(self, value: object, depth: int) -> str:
    """Returns the text of a value at nesting level `depth`."""
    kind = type(value)
    scalar = _SCALAR_BY_ID.get(id(kind))
    if scalar is not None:
      text = scalar(value)
      self.left -= len(text)
    else:
      container = _CONTAINER_BY_ID.get(id(kind))
      if container is None or depth >= MAX_DEPTH:
        raise Unserializable("type" if container is None else "depth")
      self.left -= 2
      text = container(self, value, depth + 1)
    if self.left < 0:
      raise Unserializable("size")
    return text

  def joined(self, values: Iterable[object], depth: int) -> str:
    """Returns the texts of values, in order, separated by commas."""
    return ", ".join([self.text(value, depth) for value in values])

  def unordered(self, values: Iterable[object], depth: int) -> str:
    """Returns the texts of a set's values, sorted, in braces."""
    return f"{{{', '.join(sorted([self.text(v, depth) for v in values]))}}}"

  def mapping(self, value: dict[object, object], depth: int) -> str:
    """Returns the text of a mapping, in insertion order."""
    text = self.text
    pairs = [f"{text(k, depth)}: {text(v, depth)}" for k, v in value.items()]
    return f"{{{', '.join(pairs)}}}"


def _float_text(value: float) -> str:
  text = float.__repr__(value)
  return text if math.isfinite(value) else f"float('{text}')"


def _tuple_text(writer: _Writer, value: tuple[object, ...], depth: int) -> str:
  comma = "," if len(value) == 1 else ""
  return f"({writer.joined(value, depth)}{comma})"


_SCALARS: dict[type, Callable[[Any], str]] = {
  type(None): repr,
  bool: repr,
  int: repr,
  float: _float_text,
  complex: lambda v: f"complex({_float_text(v.real)}, {_float_text(v.imag)})",
  str: ascii,
  bytes: ascii,
  fractions.Fraction: lambda v: f"Fraction({v.numerator}, {v.denominator})",
  decimal.Decimal: lambda v: f"Decimal({str(v)!r})",
}
_CONTAINERS: dict[type, Callable[[_Writer, Any, int], str]] = {
  list: lambda w, v, d: f"[{w.joined(v, d)}]",
  tuple: _tuple_text,
  set: lambda w, v, d: w.unordered(v, d) if v else "set()",
  frozenset: lambda w, v, d: (
    f"frozenset({w.unordered(v, d)})" if v else "frozenset()"
  ),
  dict: _Writer.mapping,
  collections.defaultdict: _Writer.mapping,
  collections.Counter: lambda w, v, d: f"Counter({w.mapping(v, d)})",
  collections.deque: lambda w, v, d: f"deque([{w.joined(v, d)}])",
  collections.OrderedDict: lambda w, v, d: (
    f"OrderedDict([{w.joined(list(v.items()), d)}])"
  ),
}
# Types are compared by identity, because a metaclass may claim that its type
# equals another.
_SCALAR_BY_ID = {id(kind): write for kind, write in _SCALARS.items()}
_CONTAINER_BY_ID = {id(kind): write for kind, write in _CONTAINERS.items()}
