"""The vertical axes of charts: their ranges, and how numbers are formatted."""

import math
from collections.abc import Sequence

from azr_jax.report import units

# A value is left off the axis if its distance to the others is more than this
# multiple of their range, because it would flatten the rest of the line.
_FAR = 3.0
_TAIL = 0.03  # fraction of values on each side that may be left off
_ROUNDING = 1e-6  # relative, for sums in float32


def value_range(values: Sequence[float]) -> tuple[float, float]:
  """Returns the range of an axis: round numbers around the values.

  If all values are equal, the range is 0 to 1 for a value between them, and
  extends to both sides of any other value.
  """
  low, high = min(values), max(values)
  if is_constant(values):
    low = high
  if low == high and 0 <= low <= 1:  # probably a fraction
    return 0.0, 1.0
  if low == high:
    low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    if min(values) >= 0:
      low = max(low, 0.0)
  step = round_step((high - low) / 4)
  return math.floor(low / step) * step, math.ceil(high / step) * step


def is_constant(values: Sequence[float]) -> bool:
  """Whether the values differ by no more than float32 rounding."""
  low, high = min(values), max(values)
  return high - low <= _ROUNDING * max(abs(low), abs(high))


def chart_range(values: Sequence[float], unit: str) -> tuple[float, float]:
  """Returns the range of a chart's axis.

  The axis of fractions starts at 0, and ends at 1 if a value is above 0.5: on
  an axis from 0.95 to 1, one response of sixteen would look like a crash.
  Outliers, such as the value of a first step, are left off.
  """
  if unit == units.FRACTION and min(values) >= 0 and max(values) <= 1:
    high = max(values)
    return 0.0, 1.0 if high > 0.5 or high == 0 else value_range([0.0, high])[1]
  ordered = sorted(values)
  tail = math.ceil(_TAIL * len(ordered))
  if len(ordered) > 4 * tail:
    low, high = ordered[tail], ordered[-1 - tail]
    far = _FAR * (high - low)
    if far and (ordered[-1] > high + far or ordered[0] < low - far):
      near = [v for v in ordered if low - far <= v <= high + far]
      return value_range(near)
  return value_range(values)


def widened(
  limits: tuple[float, float], values: Sequence[float]
) -> tuple[float, float]:
  """Returns the range of an axis, extended to include more values."""
  low, high = limits
  if all(low <= value <= high for value in values):
    return limits
  return value_range([*limits, *values])


def grid_step(limits: tuple[float, float]) -> float:
  """Returns the distance between grid lines; each end of the axis has one."""
  length = limits[1] - limits[0]
  steps = [round_step(length / parts) for parts in (4, 6)]
  whole = [s for s in steps if abs(length / s - round(length / s)) < 1e-6]
  return (whole or steps)[0]


def round_step(step: float) -> float:
  """Rounds up to 1, 2, 5 or 10 times a power of ten."""
  power = 10.0 ** math.floor(math.log10(step))
  return next(m * power for m in (1, 2, 5, 10) if m * power >= step * 0.999)


def power(step: float) -> int:
  """Returns the power of ten to factor out of an axis with this grid step.

  It is a multiple of 3, and 0 if the ticks are short without it.
  """
  first = exponent(step * 1.0001)
  return 0 if -3 <= first <= 3 else 3 * math.floor((first + 1) / 3)


def tick(value: float, step: float) -> str:
  """Formats a tick label with as many digits as the axis needs.

  Args:
    value: the number.
    step: the distance between grid lines. The text omits the factor 10^`power`.
  """
  factor = 10.0 ** power(step)
  digits = max(0, -exponent(step / factor * 1.0001))
  text = f"{value / factor:.{digits}f}"
  return text.removeprefix("-") if not float(text) else text


def number(value: float) -> str:
  """Formats a value with about three digits."""
  if value == 0:
    return "0"
  if abs(value) >= 1e6 or abs(value) < 1e-3:
    return f"{value:.2g}"
  digits = max(0, 2 - math.floor(math.log10(abs(value))))
  text = f"{value:,.{digits}f}"
  return text.rstrip("0").rstrip(".") if "." in text else text


def exponent(value: float) -> int:
  """Returns the power of ten of a number's first digit, and 0 for 0."""
  return math.floor(math.log10(abs(value))) if value else 0
