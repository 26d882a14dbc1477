"""Values with types that a checker cannot infer, checked where possible."""

import types
from typing import Any, TypeVar, cast

T = TypeVar("T")


def present(value: T | None) -> T:
  """Returns the value, which must not be None."""
  assert value is not None
  return value


def instance_of(kind: type[T], value: object) -> T:
  """Returns the value, which must be a `kind`."""
  assert isinstance(value, kind)
  return value


def stand_in(kind: type[T], **attributes: Any) -> T:
  """Returns an object with these attributes alone, typed as a `kind`."""
  return cast(T, types.SimpleNamespace(**attributes))
