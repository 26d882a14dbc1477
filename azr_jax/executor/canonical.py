"""Canonical text of a value, written inside the child that made it.

Only exact builtin types (and a few of collections, fractions, decimal) have a
text; anything else, a subclass included, is refused. Runs in the zygote, so
it imports the standard library only, and keeps its own references to every
builtin that a program could replace.
"""

import collections
import decimal
import fractions
import math

MAX_DEPTH = 64
MAX_CHARS = 64 * 1024


class NoText(ValueError):
  """The value has no canonical text."""


def canonical(value, depth=0, _type=type, _ascii=ascii, _sorted=sorted):
  """Returns the text of a value; see executor/literals.py for its reading.

  Raises:
    NoText: an unknown type, a cycle, or more than `MAX_DEPTH` levels.
  """
  if depth > MAX_DEPTH:
    raise NoText("depth")
  kind = _type(value)
  if value is None or kind is bool or kind is int:
    return repr(value)
  if kind is str or kind is bytes:
    return _ascii(value)
  if kind is float:
    return _float_text(value)
  writer = _WRITERS.get(kind)
  if writer is None:
    raise NoText("type")
  return writer(value, depth + 1)


def _float_text(value):
  if math.isfinite(value):
    return float.__repr__(value)
  return f"float('{float.__repr__(value)}')"


def _join(values, depth):
  return ", ".join([canonical(value, depth) for value in values])


def _tuple_text(value, depth):
  comma = "," if len(value) == 1 else ""
  return f"({_join(value, depth)}{comma})"


def _set_items(value, depth):
  return ", ".join(sorted([canonical(item, depth) for item in value]))


def _set_text(value, depth):
  return f"{{{_set_items(value, depth)}}}" if value else "set()"


def _frozenset_text(value, depth):
  return (
    f"frozenset({{{_set_items(value, depth)}}})" if value else ("frozenset()")
  )


def _dict_text(value, depth):
  pairs = [
    f"{canonical(key, depth)}: {canonical(item, depth)}"
    for key, item in value.items()
  ]
  return "{" + ", ".join(pairs) + "}"


def _ordered_text(value, depth):
  return f"OrderedDict([{_join(list(value.items()), depth)}])"


def _complex_text(value, depth):
  del depth
  return f"complex({_float_text(value.real)}, {_float_text(value.imag)})"


_WRITERS = {
  list: lambda value, depth: f"[{_join(value, depth)}]",
  tuple: _tuple_text,
  set: _set_text,
  frozenset: _frozenset_text,
  dict: _dict_text,
  collections.OrderedDict: _ordered_text,
  collections.defaultdict: _dict_text,
  collections.Counter: lambda v, d: f"Counter({_dict_text(v, d)})",
  collections.deque: lambda v, d: f"deque([{_join(v, d)}])",
  complex: _complex_text,
  fractions.Fraction: lambda v, d: f"Fraction({v.numerator}, {v.denominator})",
  decimal.Decimal: lambda v, d: f"Decimal({str(v)!r})",
}
