"""Extrapolates where a reward curve ends, by a sigmoid in log steps.

ScaleRL (arXiv 2510.13786, eq. 1) describes the reward R after compute C by
R_0 + (A - R_0) / (1 + (C_mid / C)^B), with the asymptote A, the compute C_mid
at which half of the gain is reached, and the exponent B. Here compute is
counted in steps, and R_0 is fitted too. Errors are those of least squares, as
if the residuals of steps were independent; runs with other seeds differ more.

The errors also assume that the curve keeps its shape, which the papers' own
curves often do not. `TRACK_RECORD` says how well the first half of a curve
predicts its end (`tests/lab/statistics/saturation_test.py` computes it).
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import scipy

from azr_jax.report import axes, changes, html_parts, units
from azr_jax.report.html_parts import Cell
from azr_jax.report.reading import LoggedRun

# From the curves of AZR and ORZ in `assets/references/`.
TRACK_RECORD = (
  "Of 24 curves of papers whose first half determined an asymptote, 12 ended "
  "within two of its errors of the forecast: the median miss was 2.7 points, "
  "the largest 18 (3.6 and 13 of the forecast that nothing changes)."
)
# A sigmoid with four parameters fits any fewer points.
_MIN_POINTS = 12
# Bounds that contain the exponents that ScaleRL reports.
_EXPONENTS = (0.3, 8.0)
# Upper bound of the middle, as a multiple of the length of the run.
_FARTHEST = 100.0
_CURVES = (
  (r"evaluation/(.+)/pass@1/unbiased", "pass@1"),
  (r"correct/[^/]+/(.+)/mean", "correct in training"),
  (r"reward/[^/]+/(.+)/mean", "reward in training"),
)


@dataclasses.dataclass(frozen=True)
class Fit:
  """A fitted sigmoid, with standard errors.

  Attributes:
    start: R_0.
    asymptote: A.
    asymptote_stderr: standard error of A.
    middle: C_mid, in steps.
    middle_stderr: standard error of C_mid.
    exponent: B.
    exponent_stderr: standard error of B.
    points: number of fitted points.
  """

  start: float
  asymptote: float
  asymptote_stderr: float
  middle: float
  middle_stderr: float
  exponent: float
  exponent_stderr: float
  points: int

  @property
  def is_determined(self) -> bool:
    """Whether the run is long enough to determine the asymptote.

    Two standard errors must be less than a quarter of the gain.
    """
    gain = abs(self.asymptote - self.start)
    return 2 * self.asymptote_stderr < gain / 4

  def at(self, step: float) -> float:
    """Returns the curve's value at a step."""
    gain = self.asymptote - self.start
    return self.start + gain / (1 + (self.middle / step) ** self.exponent)


def fit(steps: Sequence[float], values: Sequence[float]) -> Fit | None:
  """Fits a curve by least squares; None with too few points or without a fit.

  Args:
    steps: steps of the values, starting at 1.
    values: rewards or fractions.
  """
  if len(values) < _MIN_POINTS:
    return None
  x, y = np.log(np.asarray(steps, float)), np.asarray(values, float)
  spread = max(float(np.ptp(y)), 1e-6)
  first, last = float(np.mean(y[:3])), float(np.mean(y[-len(y) // 4 :]))
  guess = [first, last, float(np.median(x)), 0.0]
  wide = 10 * spread
  farthest = float(x[-1]) + math.log(_FARTHEST)
  bounds = (
    [first - wide, last - wide, 0.0, math.log(_EXPONENTS[0])],
    [first + wide, last + wide, farthest, math.log(_EXPONENTS[1])],
  )

  def curve(
    x: np.ndarray, start: float, end: float, log_middle: float, log_b: float
  ) -> np.ndarray:
    return start + (end - start) / (
      1 + np.exp(np.exp(log_b) * (log_middle - x))
    )

  try:
    found, covariance = scipy.optimize.curve_fit(
      curve, x, y, np.clip(guess, *bounds), bounds=bounds
    )[:2]
  except RuntimeError:  # The fit did not converge.
    return None
  errors = np.sqrt(np.diag(covariance))
  if not np.all(np.isfinite(errors)):
    return None
  middle, exponent = math.exp(found[2]), math.exp(found[3])
  return Fit(
    float(found[0]),
    float(found[1]),
    float(errors[1]),
    middle,
    middle * float(errors[2]),
    exponent,
    exponent * float(errors[3]),
    len(y),
  )


def table(runs: Sequence[LoggedRun]) -> str:
  """Returns the asymptotes of the runs' curves as an HTML table, or "".

  Curves that changed by less than two standard errors are left out. Curves too
  short to determine an asymptote are counted below the table.
  """
  rows: list[Sequence[Cell]] = []
  too_short = 0
  for pattern, words in _CURVES:
    for run in runs:
      for label, name in run.names(pattern).items():
        found = _fit(run, name)
        if found is None:
          continue
        if not found.is_determined or not _is_possible(found, name):
          too_short += 1
          continue
        title = f"{words}: {label}" if label else words
        rows.append([f"{run.name}, {title}", *_cells(found, run.done)])
  if not rows:
    return ""
  head = ("curve", "asymptote", "half at step", "exponent", "gain so far")
  note = (
    f'<p class="hint">Curves still too short for a fit: {too_short}.</p>'
    if too_short
    else ""
  )
  return html_parts.table(head, rows) + note


def _fit(run: LoggedRun, name: str) -> Fit | None:
  """Fits a metric of a run; None if it did not change or has no fit."""
  known = [
    (step, value)
    for step, value in zip(run.steps, run.values[name], strict=False)
    if value is not None
  ]
  window = changes.window(len(known))
  change = changes.of_ends([value for _, value in known], window)
  if change is None or not change.difference.direction():
    return None
  return fit(*zip(*known, strict=True))


def _is_possible(found: Fit, name: str) -> bool:
  return units.unit(name) != units.FRACTION or 0 <= found.asymptote <= 1


def _cells(found: Fit, steps: int) -> Sequence[Cell]:
  """Returns the cells of a fitted curve after its name."""
  gain = found.asymptote - found.start
  part = (found.at(steps) - found.start) / gain
  return (
    *(
      f"{axes.number(value)} \N{PLUS-MINUS SIGN} {axes.number(error)}"
      for value, error in (
        (found.asymptote, found.asymptote_stderr),
        (found.middle, found.middle_stderr),
        (found.exponent, found.exponent_stderr),
      )
    ),
    f"{100 * part:.0f} % after {steps} steps",
  )


def section(runs: Sequence[LoggedRun]) -> str:
  """Returns the section of fitted curves; "" if there are none."""
  note = (
    "A sigmoid in the logarithm of steps, as ScaleRL (arXiv 2510.13786) fits: "
    "start + gain / (1 + (half / step)^exponent), with errors of least squares "
    f"within the run. {TRACK_RECORD}"
  )
  fitted = table(runs)
  return html_parts.section("Where it ends", fitted, note) if fitted else ""
