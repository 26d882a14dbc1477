"""When an output counts as right in EvalPlus's benchmarks.

Mostly equality, as Python has it, with room for floats. For some functions
EvalPlus accepts more, since their descriptions leave it open:

| functions | right is |
| --- | --- |
| those of `_AS_SETS` | the same elements, in any order, however often |
| those of `_AS_FOUND` | something where something is found, True included |
| `find_zero` | a root of the polynomial that is the input |
| `digit_distance_nums`, `surface_Area` | also by another reading of the task |
"""

import math
from collections.abc import Callable
from typing import Any

from azr_jax.grading import literals, values

_AS_SETS = frozenset(
  "similar_elements find_char_long common_in_nested_lists extract_singly "
  "larg_nnum intersection_array find_dissimilar Diff".split()
)
_AS_FOUND = frozenset("check_str text_match_three text_starta_endb".split())
_RELATIVE = 1e-7
_ABSOLUTE = 1e-6  # Of floats, where the row names none.
_ROOT = 1e-4


def right(
  entry: str, inputs: str, want: str, got: str, tolerance: float
) -> bool:
  """Whether an output is right.

  Args:
    entry: the function.
    inputs: its arguments, as text.
    want: the canonical solution's output, as canonical text.
    got: the output in question, likewise.
    tolerance: of floats; 0: EvalPlus's own.
  """
  try:
    wanted, found = _value(want), _value(got)
    if entry in _AS_SETS:
      return set(wanted) == set(found)
    if entry in _AS_FOUND and not isinstance(found, bool):
      return wanted is (found is not None)
    special = _SPECIAL.get(entry)
    if special is not None and special(_value(f"({inputs},)"), found):
      return True
    return _near(wanted, found, tolerance or _ABSOLUTE)
  except (literals.ParseError, RecursionError):
    return want == got
  except (TypeError, ValueError, OverflowError):
    return False


def _value(text: str) -> Any:
  return values.plain_value(literals.typed_key(text))


def _near(one: Any, other: Any, tolerance: float) -> bool:
  if isinstance(one, float) or isinstance(other, float):
    try:
      return one == other or (
        abs(one - other) <= tolerance + _RELATIVE * abs(one)
      )
    except TypeError:
      return False
  if isinstance(one, list | tuple) and isinstance(other, list | tuple):
    return (
      type(one) is type(other)
      and len(one) == len(other)
      and all(_near(a, b, tolerance) for a, b in zip(one, other, strict=True))
    )
  if isinstance(one, dict) and isinstance(other, dict):
    return one.keys() == other.keys() and all(
      _near(value, other[key], tolerance) for key, value in one.items()
    )
  return bool(one == other)


def _is_root(arguments: tuple[Any, ...], found: Any) -> bool:
  (coefficients,) = arguments
  terms = (c * found**power for power, c in enumerate(coefficients))
  return abs(math.fsum(terms)) < _ROOT


def _is_digit_distance(arguments: tuple[Any, ...], found: Any) -> bool:
  """The sum of the distances of digits at the same places."""
  one, other = map(str, arguments)
  width = max(len(one), len(other))
  pairs = zip(one.zfill(width), other.zfill(width), strict=True)
  return found == sum(abs(int(a) - int(b)) for a, b in pairs)


def _is_surface(arguments: tuple[Any, ...], found: Any) -> bool:
  """Of a pyramid on a square, whose height is given and not its slant."""
  base, height = arguments
  slant = math.hypot(base / 2, height)
  return found == round(base**2 + 2 * base * slant)


_SPECIAL: dict[str, Callable[[tuple[Any, ...], Any], bool]] = {
  "find_zero": _is_root,
  "digit_distance_nums": _is_digit_distance,
  "surface_Area": _is_surface,
}
