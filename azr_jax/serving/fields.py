"""Reads the fields of a request; an invalid one gives status 400 and its name.

Each field of a request is taken once. Fields left at the end are unknown and
refused by name, so that a misspelt field is not ignored silently. A null field
counts as missing: OpenAI's client sends every field of a message, including the
null ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.serving import errors
from azr_jax.serving.errors import ApiError

_MAX_NUMBER = 1e30


class Fields:
  """The unread fields of a request."""

  def __init__(self, values: Mapping[str, Any], inside: str = ""):
    """Takes the fields of an object.

    Args:
      values: the object.
      inside: a prefix of the field names in errors.
    """
    self._left = {k: v for k, v in values.items() if v is not None}
    self._inside = inside

  def take(self, name: str) -> Any:
    """Returns the value of a field. None if it is missing or null."""
    return self._left.pop(name, None)

  def refuse(self, name: str, value: Any, expected: str) -> Any:
    """Raises the error for a field."""
    errors.refuse_field(self._inside + name, value, expected)

  def boolean(self, name: str) -> bool:
    """Returns a boolean field. False if it is missing."""
    value = self.take(name)
    if value is not None and not isinstance(value, bool):
      self.refuse(name, value, "true or false")
    return bool(value)

  def integer(
    self, name: str, default: int | None, minimum: int, maximum: int, why: str
  ) -> int | None:
    """Returns an integer field.

    Args:
      name: the field's name.
      default: the value if the field is missing.
      minimum: the smallest allowed value.
      maximum: the largest allowed value.
      why: a text that follows the maximum in an error.
    """
    value = self.take(name)
    if value is None:
      return default
    # JSON has one number type: 3.0 is the integer 3. In Python, True is an int.
    if isinstance(value, float) and value.is_integer():
      value = int(value)
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer or not minimum <= value <= maximum:
      expected = f"an integer from {minimum} to {maximum}{why}"
      self.refuse(name, value, expected)
    return value

  def number(self, name: str, default: float, minimum: float) -> float:
    """Returns a number field of at least `minimum`."""
    value = self.take(name)
    if value is None:
      return default
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # A JSON integer may overflow float, and a float may overflow float32.
    if not is_number or not minimum <= value <= _MAX_NUMBER:
      self.refuse(name, value, f"a number from {minimum:g} to {_MAX_NUMBER:g}")
    return float(value)

  def stops(self, name: str, most: int) -> tuple[str, ...]:
    """Returns the stop strings: one, several or none."""
    value = self.take(name)
    if value is None:
      return ()
    strings = [value] if isinstance(value, str) else value
    if (
      not isinstance(strings, list)
      or len(strings) > most
      or not all(isinstance(s, str) and s for s in strings)
    ):
      self.refuse(
        name, value, f"a non-empty string, or a list of at most {most}"
      )
    return tuple(dict.fromkeys(strings))

  def only(self, name: str, allowed: Sequence[Any], why: str) -> None:
    """Refuses every value of a field except the neutral ones."""
    value = self.take(name)
    if value is None or any(
      value == one and isinstance(value, bool) == isinstance(one, bool)
      for one in allowed
    ):
      return
    expected = " or ".join(map(repr, allowed)) or "null"
    self.refuse(name, value, f"{expected}, because {why}")

  def ignore(self, *names: str) -> None:
    """Takes fields that do not affect the answer."""
    for name in names:
      self.take(name)

  def end(self) -> None:
    """Raises ApiError if an unread field is left, because it is unknown."""
    for name in self._left:
      raise ApiError(
        400,
        f"unknown field {self._inside + name!r}: expected one of the fields "
        "that docs/guide/serve.md lists",
        param=self._inside + name,
        code="unknown_parameter",
      )
