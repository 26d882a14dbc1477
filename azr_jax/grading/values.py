"""Compares the values of two literals, and rebuilds a value from its key."""

import ast
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from azr_jax.grading import literals

# Only contrived values reach this limit. Powers of two come closest (1 and
# 2**61 share a hash), but 64 KiB of text holds at most 11 that share one.
MAX_SAME_HASH = 64


def values_equal(reference: str, answer: str) -> bool:
  """Returns whether two literals have the same type and value.

  Uses the rules of `literals.typed_key`. Text that is not a literal equals
  nothing, not even itself.
  """
  try:
    return literals.typed_key(reference) == literals.typed_key(answer)
  except literals.ParseError:
    return False


def plain_value(key: Hashable) -> Any:
  """Rebuilds the value of a typed key.

  Use it to compare values as Python does (`1 == 1.0 == True`, a set equals a
  frozenset, NaN equals nothing). A key only holds values of builtin and
  standard library types, so `==`, `bool` and `-` on the value run no untrusted
  code.

  Args:
    key: a key from `literals.typed_key` or `literals.node_key`.

  Raises:
    ParseError: the value cannot be built, because a part is unhashable or too
      many parts share a hash. Or the value is ambiguous: of `{1: 2, True: 3}`
      Python keeps the last item, but a key has no order.
  """
  try:
    return _rebuild(key)
  except (TypeError, ValueError, RecursionError) as error:
    raise literals.ParseError(f"cannot build the value: {error}") from None


# Types whose values may be equal to one another in Python.
_NUMBERS = frozenset("bool int float complex Fraction Decimal".split())


def may_drop_items(key: Hashable) -> bool:
  """Returns whether Python may drop items of a literal, as in `{1, True}`.

  The Python value of such a literal differs from its typed key. This is rare: a
  set or a dict mixes numbers of two types, or an `OrderedDict` repeats a key.

  Args:
    key: a key from `literals.typed_key`.
  """
  assert isinstance(key, tuple)
  kind, *parts = key
  if kind in ("set", "frozenset"):
    return len(_number_kinds(parts[0])) > 1 or any(
      map(may_drop_items, parts[0])
    )
  if kind in ("dict", "Counter"):
    keys = [name for name, _ in parts[0]]
    values = (value for _, value in parts[0])
    return len(_number_kinds(keys)) > 1 or any(map(may_drop_items, values))
  if kind == "OrderedDict":
    pairs = [part for tag, *part in parts[0] if tag == "tuple"]
    names = [pair[0][0] for pair in pairs if len(pair[0]) == 2]
    is_plain = len(set(names)) == len(parts[0])
    if not is_plain or len(_number_kinds(names)) > 1:
      return True
    return any(map(may_drop_items, parts[0]))
  if kind in ("list", "tuple", "deque"):
    return any(map(may_drop_items, parts[0]))
  return False


def drops_items(text: str) -> bool:
  """Returns whether Python drops an item of literal arguments.

  A dropped item, as in `{1: 'a hint', 1: 2}`, exists only in the text.

  Args:
    text: the literal arguments of one call.

  Raises:
    ParseError: the text is not literal arguments.
  """
  if "{" not in text and "OrderedDict" not in text:
    return False
  tree = literals.guarded_parse(f"f({text}\n)", "eval")
  for node in ast.walk(tree):
    if isinstance(node, ast.Dict):
      keys = {literals.node_key(key) for key in node.keys if key is not None}
      if len(keys) < len(node.keys):
        return True
  assert isinstance(tree, ast.Expression) and isinstance(tree.body, ast.Call)
  named = (keyword.value for keyword in tree.body.keywords)
  parts = (*tree.body.args, *named)
  return any(may_drop_items(literals.node_key(part)) for part in parts)


def _number_kinds(keys: Iterable[Hashable]) -> set[str]:
  """Returns the types of the numbers in keys, including those in tuples."""
  kinds: set[str] = set()
  for key in keys:
    assert isinstance(key, tuple)
    if key[0] in _NUMBERS:
      kinds.add(key[0])
    elif key[0] in ("tuple", "frozenset"):
      kinds |= _number_kinds(key[1])
  return kinds


def _rebuild(key: Hashable) -> Any:
  assert isinstance(key, tuple)
  kind, *parts = key
  return _REBUILD[kind](*parts)


def _identity(part: Any) -> Any:
  return part


def _rebuild_all(keys: Iterable[Hashable]) -> list[Any]:
  return [_rebuild(key) for key in keys]


def few_collisions(items: list[Any]) -> list[Any]:
  """Returns the items after checking that few of them share a hash.

  Raises:
    ValueError: too many items share a hash, so a set of them would take
      quadratic time.
  """
  most = max(Counter(map(hash, items)).values(), default=0)
  if most > MAX_SAME_HASH:
    raise ValueError(
      f"{most} values share a hash; expected at most {MAX_SAME_HASH}"
    )
  return items


def _rebuild_dict(items: Iterable[tuple[Hashable, Hashable]]) -> dict[Any, Any]:
  pairs = [(_rebuild(key), _rebuild(value)) for key, value in items]
  few_collisions([key for key, _ in pairs])
  rebuilt = dict(pairs)
  if len(rebuilt) != len(pairs):
    raise ValueError("two keys of a dict are equal")
  return rebuilt


def _rebuild_ordered_dict(
  keys: Iterable[Hashable],
) -> OrderedDict[Any, Any]:
  pairs = [tuple(pair) for pair in _rebuild_all(keys)]
  few_collisions([pair[:1] for pair in pairs])
  return OrderedDict(pairs)


def _int(text: str) -> int:
  return int(text, 16)


_REBUILD: dict[str, Callable[..., Any]] = {
  "NoneType": _identity,
  "bool": _identity,
  "int": _int,
  "str": _identity,
  "bytes": _identity,
  "float": float.fromhex,  # Each "nan" is a new object, so it equals nothing.
  "complex": lambda *parts: complex(*_rebuild_all(parts)),
  "Fraction": lambda above, below: Fraction(_int(above), _int(below)),
  "Decimal": Decimal,
  "list": _rebuild_all,
  "tuple": lambda keys: tuple(_rebuild_all(keys)),
  "set": lambda keys: set(few_collisions(_rebuild_all(keys))),
  "frozenset": lambda keys: frozenset(few_collisions(_rebuild_all(keys))),
  "deque": lambda keys: deque(_rebuild_all(keys)),
  "dict": _rebuild_dict,
  "Counter": lambda items: Counter(_rebuild_dict(items)),
  "OrderedDict": _rebuild_ordered_dict,
}
