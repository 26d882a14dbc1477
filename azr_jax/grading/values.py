"""Whether two texts are the same Python value, and the value itself."""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from azr_jax.grading import literals


def values_equal(gold: str, answer: str) -> bool:
  """Compares two literals by type and value; see `literals.typed_key`.

  Text that is no literal equals nothing, itself included.
  """
  try:
    return literals.typed_key(gold) == literals.typed_key(answer)
  except literals.ParseError:
    return False


def plain_value(key: Hashable) -> Any:
  """Returns the value of a typed key, made anew.

  For a grader that must compare as Python does (`1 == 1.0 == True`, a set
  equals a frozenset, NaN equals nothing). A key holds values of builtin and
  standard types only, so `==`, `bool` and `-` on what comes back run no code
  of a text's author.

  Args:
    key: from `literals.typed_key` or `literals.node_key`.

  Raises:
    ParseError: Python has no such value, for want of a hash, or not exactly
      one: of `{1: 2, True: 3}` it keeps the last, and a key has no order.
  """
  try:
    return _rebuild(key)
  except (TypeError, ValueError, RecursionError) as error:
    raise literals.ParseError(f"no value of Python: {error}") from None


def _rebuild(key: Hashable) -> Any:
  assert isinstance(key, tuple)
  kind, *parts = key
  return _REBUILD[kind](*parts)


def _same(part: Any) -> Any:
  return part


def _rebuild_all(keys: Iterable[Hashable]) -> list[Any]:
  return [_rebuild(key) for key in keys]


def _rebuild_dict(items: Iterable[tuple[Hashable, Hashable]]) -> dict[Any, Any]:
  pairs = [(_rebuild(key), _rebuild(value)) for key, value in items]
  rebuilt = dict(pairs)
  if len(rebuilt) != len(pairs):
    raise ValueError("two keys of a dict are equal")
  return rebuilt


_REBUILD: dict[str, Callable[..., Any]] = {
  "NoneType": _same,
  "bool": _same,
  "int": _same,
  "str": _same,
  "bytes": _same,
  "float": float,  # Of "nan" too: a new one each time, equal to nothing.
  "complex": lambda *parts: complex(*_rebuild_all(parts)),
  "Fraction": Fraction,
  "Decimal": Decimal,
  "list": _rebuild_all,
  "tuple": lambda keys: tuple(_rebuild_all(keys)),
  "set": lambda keys: set(_rebuild_all(keys)),
  "frozenset": lambda keys: frozenset(_rebuild_all(keys)),
  "deque": lambda keys: deque(_rebuild_all(keys)),
  "dict": _rebuild_dict,
  "Counter": lambda items: Counter(_rebuild_dict(items)),
  "OrderedDict": lambda keys: OrderedDict(_rebuild_all(keys)),
}
