"""Decides when an output counts as correct in EvalPlus's benchmarks.

Values are compared by Python's equality, with a tolerance for floats. EvalPlus
accepts more for some functions whose descriptions are ambiguous:

| function | also correct |
| --- | --- |
| in `_COMPARED_AS_SETS` | the same elements in any order and number |
| in `_RETURN_MATCHES` | a match object (anything but None) instead of True |
| `find_zero` | any root of the input polynomial |
| `digit_distance_nums`, `surface_Area` | the result of another interpretation |
"""

import math
from collections.abc import Callable
from typing import Any

from azr_jax.grading import harness, literals, values

_COMPARED_AS_SETS = frozenset(
  "similar_elements find_char_long common_in_nested_lists extract_singly "
  "larg_nnum intersection_array find_dissimilar Diff".split()
)
_RETURN_MATCHES = frozenset(
  "check_str text_match_three text_starta_endb".split()
)
_RELATIVE_TOLERANCE = 1e-7
_ABSOLUTE_TOLERANCE = 1e-6  # unless the record sets one
_ROOT_TOLERANCE = 1e-4


def is_correct(
  entry: str, inputs: str, expected: str, output: str, tolerance: float
) -> bool:
  """Returns whether an output is correct.

  Args:
    entry: the name of the function.
    inputs: the arguments of the call, as text.
    expected: the canonical solution's output, as canonical text.
    output: the output to judge, as canonical text.
    tolerance: the absolute tolerance for floats; 0 uses EvalPlus's default.
  """
  if expected == output and "nan" not in output:
    return True
  try:
    want, got = harness.value(expected), harness.value(output)
    if harness.LongValue in (type(want), type(got)):
      return bool(want == got)
    if entry in _COMPARED_AS_SETS:
      return set(want) == set(values.few_collisions(list(got)))
    if entry in _RETURN_MATCHES and not isinstance(got, bool):
      return want is (got is not None)
    special = _SPECIAL.get(entry)
    if special is not None and special(harness.value(f"({inputs},)"), got):
      return True
    return _is_close(want, got, tolerance or _ABSOLUTE_TOLERANCE)
  except (literals.ParseError, RecursionError):
    return expected == output
  except (TypeError, ValueError, OverflowError):
    return False


def _is_close(want: Any, got: Any, tolerance: float) -> bool:
  """Returns whether two values are equal, with a tolerance for floats."""
  if isinstance(want, float) or isinstance(got, float):
    try:
      return want == got or (
        abs(want - got) <= tolerance + _RELATIVE_TOLERANCE * abs(want)
      )
    except TypeError:
      return False
  if isinstance(want, list | tuple) and isinstance(got, list | tuple):
    return (
      type(want) is type(got)
      and len(want) == len(got)
      and all(
        _is_close(a, b, tolerance) for a, b in zip(want, got, strict=True)
      )
    )
  if isinstance(want, dict) and isinstance(got, dict):
    return want.keys() == got.keys() and all(
      _is_close(value, got[key], tolerance) for key, value in want.items()
    )
  return bool(want == got)


def _is_root(arguments: tuple[Any, ...], output: Any) -> bool:
  """Returns whether the output is a root of the polynomial."""
  (coefficients,) = arguments
  terms = (c * output**power for power, c in enumerate(coefficients))
  return abs(math.fsum(terms)) < _ROOT_TOLERANCE


def _is_digit_distance(arguments: tuple[Any, ...], output: Any) -> bool:
  """Returns whether the output is the sum of the digits' distances."""
  first, second = map(str, arguments)
  width = max(len(first), len(second))
  digits = zip(first.zfill(width), second.zfill(width), strict=True)
  return output == sum(abs(int(a) - int(b)) for a, b in digits)


def _is_surface(arguments: tuple[Any, ...], output: Any) -> bool:
  """Returns whether the output is the surface area of a square pyramid.

  This interpretation takes the second argument as the height, not the slant.
  """
  base, height = arguments
  slant = math.hypot(base / 2, height)
  return output == round(base**2 + 2 * base * slant)


_SPECIAL: dict[str, Callable[[tuple[Any, ...], Any], bool]] = {
  "find_zero": _is_root,
  "digit_distance_nums": _is_digit_distance,
  "surface_Area": _is_surface,
}
