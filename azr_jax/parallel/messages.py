"""JSON messages between the hosts of a run.

Senders are not authenticated, so reading a message must never run code from it,
as unpickling would. Values arrive equal and with the same types: numbers,
strings, lists, tuples, dictionaries with any of these as keys, dataclasses, and
enumeration members.
"""

import dataclasses
import enum
import json
import sys
from typing import Any

# Python refuses to parse decimal integers of more than 4,300 digits, so long
# ones are sent in hexadecimal.
_PLAIN_BITS = 64


def dumps(value: Any) -> bytes:
  """Returns a value as a message.

  Raises:
    TypeError: part of the value has a type that messages cannot hold.
  """
  return json.dumps(_encoded(value)).encode()


def loads(message: bytes) -> Any:
  """Returns the value of a message.

  Raises:
    ValueError: the message was not made by `dumps`, or it names a class that
      this process has not loaded or that is neither a dataclass nor an
      enumeration.
  """
  try:
    return _decoded(json.loads(message))
  except (KeyError, TypeError, AttributeError, RecursionError) as error:
    raise ValueError(f"expected a message, not {message[:80]!r}") from error


def _encoded(value: Any) -> Any:
  """Returns a value as JSON; non-JSON types become {kind: contents}."""
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
    f"cannot send a value of type {type(value).__name__} between hosts: "
    "expected numbers, strings, lists, tuples, dictionaries, dataclasses or "
    "enumeration members"
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
  """Returns a dataclass or enumeration from a loaded module."""
  module, _, attribute = name.partition(":")
  kind = vars(sys.modules[module])[attribute]
  is_known = isinstance(kind, type) and (
    dataclasses.is_dataclass(kind) or issubclass(kind, enum.Enum)
  )
  if not is_known:
    raise ValueError(f"{name}: expected a dataclass or an enumeration")
  return kind
