"""What changed between a run's first and last steps, with errors.

A mean over steps has the standard error of independent steps, s / sqrt(n) for
the standard deviation s of n steps. A trend within the steps makes it larger;
steps that resemble their neighbours make it too small.
"""

import dataclasses
import math
from collections.abc import Sequence

from azr_jax.report.reading import Run

# Means at both ends are over this many steps, of a run that has enough of them.
_MAX_WINDOW = 10
# The spread of fewer steps says too little: of three against three that differ
# by chance alone, one in nine would be called a change.
_MIN_FOR_ERROR = 4
# A difference beyond so many standard errors is called one.
_SURE = 2.0


@dataclasses.dataclass(frozen=True)
class Estimate:
  """A number and its standard error; None: the error is not known."""

  value: float
  stderr: float | None = None

  def minus(self, other: "Estimate") -> "Estimate":
    """Returns the difference to another number, taken as independent."""
    if self.stderr is None or other.stderr is None:
      return Estimate(self.value - other.value)
    stderr = math.hypot(self.stderr, other.stderr)
    return Estimate(self.value - other.value, stderr)

  def direction(self) -> str:
    """Returns "up", "down", or "" within two standard errors or without one."""
    if self.stderr is None or abs(self.value) <= _SURE * self.stderr:
      return ""
    return "up" if self.value > 0 else "down"


@dataclasses.dataclass(frozen=True)
class Change:
  """A quantity at the first and at the last steps of a run.

  Attributes:
    first: before.
    last: after.
    paired: the last less the first, if they are of the same problems or runs;
      None: the two are independent.
  """

  first: Estimate
  last: Estimate
  paired: Estimate | None = None

  @property
  def difference(self) -> Estimate:
    """The last less the first."""
    return self.paired or self.last.minus(self.first)


def window(num_steps: int) -> int:
  """Returns how many steps are averaged at each end of a run: up to a third."""
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
    values: one per step.
    steps: how many values are averaged at each end.

  Returns:
    None if there are fewer than two values, or so few that ends would overlap.
    Ends of fewer than four values have no errors, so nobody calls it a change.
  """
  known = [value for value in values if value is not None]
  if steps < 1 or len(known) < max(2 * steps, 2):
    return None
  first, last = mean(known[:steps]), mean(known[-steps:])
  if steps < _MIN_FOR_ERROR:
    return Change(Estimate(first.value), Estimate(last.value))
  return Change(first, last)


def mean_change(found: Sequence[Change]) -> Change | None:
  """Returns the mean of independent changes; None: there are none."""
  if not found:
    return None
  ends = ([one.first for one in found], [one.last for one in found])
  return Change(*map(_mean_of_independent, ends))


def _mean_of_independent(numbers: Sequence[Estimate]) -> Estimate:
  """Returns the mean of numbers, with the error that theirs give it."""
  value = sum(one.value for one in numbers) / len(numbers)
  errors = [one.stderr for one in numbers if one.stderr is not None]
  if len(errors) < len(numbers):
    return Estimate(value)
  return Estimate(value, math.hypot(*errors) / len(numbers))


def of_evaluations(run: Run, name: str, last_step: int) -> Change | None:
  """Returns the change from the first to the last evaluation.

  Args:
    run: the run.
    name: a metric of evaluations; `NAME_stderr` has its standard errors.
    last_step: later evaluations do not count.

  Returns:
    None if there are not two evaluations.
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
