"""Values that the hosts of a run send each other, as JSON.

Nobody checks who sends a message, so reading one must not run what it says, as
reading a pickle does. Values come back equal and of the same types: numbers,
texts, lists, tuples, dictionaries with keys of any of these, dataclasses, and
members of enumerations.
"""

import dataclasses
import enum
import json
import sys
from typing import Any

# Python refuses decimal integers of more than 4,300 digits, so long ones are
# sent in hexadecimal.
_PLAIN_BITS = 64


def dumps(value: Any) -> bytes:
  """Returns a value as a message.

  Raises:
    TypeError: a part of it is of a type that messages cannot hold.
  """
  return json.dumps(_encoded(value)).encode()


def loads(message: bytes) -> Any:
  """Returns the value of a message.

  Raises:
    ValueError: it is no message of `dumps`, or names a class that this process
      has not loaded or that is neither a dataclass nor an enumeration.
  """
  try:
    return _decoded(json.loads(message))
  except (KeyError, TypeError, AttributeError, RecursionError) as error:
    raise ValueError(f"expected a message, not {message[:80]!r}") from error


def _encoded(value: Any) -> Any:
  """Returns a value as what JSON has; an object is {kind: contents}."""
  if value is None or isinstance(value, bool | float | str):
    return value
  if isinstance(value, int):
    is_plain = value.bit_length() < _PLAIN_BITS
    return value if is_plain else {"int": hex(value)}
  if isinstance(value, list):
    return [_encoded(item) for item in value]
  if isinstance(value, tuple):
    return {"tuple": [_encoded(item) for item in value]}
  if isinstance(value, dict):
    return {"dict": [[_encoded(k), _encoded(v)] for k, v in value.items()]}
  if isinstance(value, enum.Enum):
    return {"of": _name(type(value)), "member": value.name}
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    return {"of": _name(type(value)), "fields": _encoded(vars(value))}
  raise TypeError(
    f"a value of type {type(value).__name__}: expected numbers, texts, lists, "
    "tuples, dictionaries, dataclasses and enumerations between hosts"
  )


def _decoded(value: Any) -> Any:
  if isinstance(value, list):
    return [_decoded(item) for item in value]
  if not isinstance(value, dict):
    return value
  if "int" in value:
    return int(value["int"], 16)
  if "tuple" in value:
    return tuple(_decoded(item) for item in value["tuple"])
  if "dict" in value:
    return {_decoded(k): _decoded(v) for k, v in value["dict"]}
  kind = _class(value["of"])
  if issubclass(kind, enum.Enum):
    return kind[value["member"]]
  return kind(**_decoded(value["fields"]))


def _name(kind: type) -> str:
  return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str) -> type:
  """Returns a dataclass or an enumeration of a loaded module."""
  module, _, attribute = name.partition(":")
  kind = vars(sys.modules[module])[attribute]
  is_known = isinstance(kind, type) and (
    dataclasses.is_dataclass(kind) or issubclass(kind, enum.Enum)
  )
  if not is_known:
    raise ValueError(f"{name}: expected a dataclass or an enumeration")
  return kind
