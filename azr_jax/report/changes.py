"""Changes between a run's first and last steps, with standard errors.

The standard error of a mean over n steps treats them as independent:
s / sqrt(n), where s is the steps' standard deviation. A trend within the steps
makes it too large; correlation between neighbouring steps makes it too small.
"""

import dataclasses
import math
from collections.abc import Sequence

from azr_jax.report.reading import LoggedRun

# Maximum number of steps in the means at both ends of a run.
_MAX_WINDOW = 10
# Fewer steps give no useful standard error: with three steps at each end, one
# in nine pure-noise differences would be called a change.
_MIN_FOR_ERROR = 4
# Standard errors beyond which a difference counts as a change.
_SURE = 2.0


@dataclasses.dataclass(frozen=True)
class Estimate:
  """A number and its standard error. The error is None if unknown."""

  value: float
  stderr: float | None = None

  def minus(self, other: "Estimate") -> "Estimate":
    """Returns the difference, assuming independent errors."""
    if self.stderr is None or other.stderr is None:
      return Estimate(self.value - other.value)
    stderr = math.hypot(self.stderr, other.stderr)
    return Estimate(self.value - other.value, stderr)

  def direction(self) -> str:
    """Returns "up", "down", or "" if the change is not significant."""
    if self.stderr is None or abs(self.value) <= _SURE * self.stderr:
      return ""
    return "up" if self.value > 0 else "down"


@dataclasses.dataclass(frozen=True)
class Change:
  """A quantity at the first and at the last steps of a run.

  Attributes:
    first: the value before.
    last: the value after.
    paired: the difference `last - first` over the same problems or runs. None
      if the two are independent.
  """

  first: Estimate
  last: Estimate
  paired: Estimate | None = None

  @property
  def difference(self) -> Estimate:
    """The difference `last - first`."""
    return self.paired or self.last.minus(self.first)


def window(num_steps: int) -> int:
  """Returns the number of steps averaged at each end, at most a third."""
  return min(_MAX_WINDOW, num_steps // 3)


def mean(values: Sequence[float]) -> Estimate:
  """Returns the mean of at least one value, with its standard error."""
  average = sum(values) / len(values)
  if len(values) < 2:
    return Estimate(average)
  variance = sum((v - average) ** 2 for v in values) / (len(values) - 1)
  return Estimate(average, math.sqrt(variance / len(values)))


def of_ends(values: Sequence[float | None], steps: int) -> Change | None:
  """Returns the change from the first to the last steps that have a value.

  Args:
    values: one value per step.
    steps: number of values averaged at each end.

  Returns:
    The change, or None if there are fewer than two values or the ends would
    overlap. With fewer than four values per end it has no errors, so it never
    counts as significant.
  """
  known = [value for value in values if value is not None]
  if steps < 1 or len(known) < max(2 * steps, 2):
    return None
  first, last = mean(known[:steps]), mean(known[-steps:])
  if steps < _MIN_FOR_ERROR:
    return Change(Estimate(first.value), Estimate(last.value))
  return Change(first, last)


def mean_change(found: Sequence[Change]) -> Change | None:
  """Returns the mean of independent changes, or None if there are none."""
  if not found:
    return None
  ends = ([one.first for one in found], [one.last for one in found])
  return Change(*map(_mean_of_independent, ends))


def _mean_of_independent(numbers: Sequence[Estimate]) -> Estimate:
  """Returns the mean of numbers, with the propagated standard error."""
  value = sum(one.value for one in numbers) / len(numbers)
  errors = [one.stderr for one in numbers if one.stderr is not None]
  if len(errors) < len(numbers):
    return Estimate(value)
  return Estimate(value, math.hypot(*errors) / len(numbers))


def of_evaluations(run: LoggedRun, name: str, last_step: int) -> Change | None:
  """Returns the change from the first to the last evaluation.

  Args:
    name: the evaluation's metric. `NAME_stderr` holds its standard errors.
    last_step: the last step to consider.

  Returns:
    The change, or None if there are fewer than two evaluations.
  """
  unknown: list[float | None] = [None] * len(run.steps)
  errors = run.values.get(f"{name}_stderr", unknown)
  found = [
    Estimate(value, error)
    for step, value, error in zip(
      run.steps, run.values[name], errors, strict=True
    )
    if value is not None and step <= last_step
  ]
  return Change(found[0], found[-1]) if len(found) > 1 else None
