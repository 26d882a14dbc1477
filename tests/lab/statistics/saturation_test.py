"""Tests sigmoid fits of rewards against curves with known parameters."""

import collections
import csv
import pathlib
import re

import numpy as np
import pytest
from typed import present

from azr_jax.lab.statistics import saturation
from azr_jax.report import page, reading, references
from azr_jax.report.scores import Benchmarks


def curve(steps, start, end, middle, exponent, noise=0.0, seed=0):
  gain = (end - start) / (1 + (middle / np.asarray(steps)) ** exponent)
  return start + gain + np.random.default_rng(seed).normal(0, noise, len(steps))


@pytest.mark.parametrize(
  "numbers", [(0.2, 0.8, 20.0, 1.5), (0.7, 0.3, 40.0, 3.0)]
)
def test_numbers_of_a_curve_are_found(numbers):
  steps = [*range(1, 301)]
  found = present(saturation.fit(steps, curve(steps, *numbers)))
  assert (
    found.start,
    found.asymptote,
    found.middle,
    found.exponent,
  ) == pytest.approx(numbers, rel=1e-3)
  assert found.is_determined
  assert found.at(numbers[2]) == pytest.approx(sum(numbers[:2]) / 2, rel=1e-3)


def test_errors_are_those_of_repeated_runs():
  steps = [*range(1, 301)]
  fits = [
    present(saturation.fit(steps, curve(steps, 0.2, 0.8, 30, 1.5, 0.05, seed)))
    for seed in range(60)
  ]
  ends = [one.asymptote for one in fits]
  stated = np.mean([one.asymptote_stderr for one in fits])
  assert np.mean(ends) == pytest.approx(0.8, abs=0.02)
  assert np.std(ends) == pytest.approx(stated, rel=0.35)


def test_a_run_that_still_rises_does_not_show_where_it_ends():
  steps = [*range(1, 41)]
  found = saturation.fit(steps, curve(steps, 0.2, 0.9, 200, 1.5, 0.03))
  assert found is None or not found.is_determined


def test_few_points_are_not_fitted():
  steps = [*range(1, 9)]
  assert saturation.fit(steps, curve(steps, 0.2, 0.8, 3, 2)) is None


def test_the_track_record_is_that_of_the_papers_curves():
  """The first half of a curve forecasts the mean of its last 15 %."""
  curves = collections.defaultdict(list)
  for path in sorted(references.FOLDER.glob("*.csv")):
    with path.open(encoding="utf-8") as file:
      for row in csv.DictReader(file):
        is_curve = re.search("in training|means of", row["label"])
        if is_curve and not row["metric"].startswith("tokens/"):
          points = curves[path.name, row["metric"], row["label"]]
          points.append((int(row["step"]), float(row["value"])))
  misses, unchanged, kept = [], [], 0
  for points in curves.values():
    last = points[-1][0]
    half = [point for point in points if point[0] <= last / 2]
    end = [point for point in points if point[0] > 0.85 * last]
    found = saturation.fit(*zip(*half, strict=True))
    if found is None or not found.is_determined or not 0 < found.asymptote < 1:
      continue
    wanted = np.mean([value for _, value in end])
    miss = abs(np.mean([found.at(step) for step, _ in end]) - wanted)
    misses.append(100 * miss)
    kept += miss <= 2 * found.asymptote_stderr
    recent = np.mean([value for _, value in half[-(len(half) // 4) :]])
    unchanged.append(100 * abs(recent - wanted))
  assert saturation.TRACK_RECORD == (
    f"Of {len(misses)} curves of papers whose first half determined an "
    f"asymptote, {kept} ended within two of its errors of the forecast: the "
    f"median miss was {np.median(misses):.1f} points, the largest "
    f"{max(misses):.0f} ({np.median(unchanged):.1f} and {max(unchanged):.0f} "
    "of the forecast that nothing changes)."
  )


def run_of(values):
  """Returns a run whose metric of correct responses has these values."""
  steps = [*range(1, len(values) + 1)]
  named: dict[str, list[float | None]] = {
    "correct/orz/solve/mean": [*map(float, values)],
    "time/step": [1.0] * len(values),
  }
  folder = pathlib.Path("run")
  return reading.LoggedRun(
    *("run", folder, {}, steps, named, [], [], {}, folder, [], 0.0)
  )


def test_the_page_shows_only_fits_that_the_run_determines():
  steps = np.arange(1, 201)
  rises = run_of(curve(steps, 0.2, 0.8, 20, 2, 0.02))
  shown = page.build(
    [rises], Benchmarks([rises], {}), analyses=[saturation.section]
  )
  assert "Where it ends" in shown and "% after 200 steps" in shown
  rising = run_of(curve(steps, 0.2, 0.9, 2000, 1.5, 0.01))
  assert saturation.table([rising]) == ""
  both = saturation.table([rises, rising])
  assert both.count("<tr>") == 2 and "too short for a fit: 1" in both
  flat = run_of(curve(steps, 0.4, 0.4, 20, 2, 0.02))
  assert saturation.table([flat]) == ""
