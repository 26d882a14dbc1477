"""Draws the distribution of proposals, and how a step spends its time."""

import math
import re

from azr_jax.report import axes, charts, sections
from azr_jax.report.figures import Figures, figure
from azr_jax.report.reading import LoggedRun

# [number of correct responses][step] -> number of proposals, or None.
Counts = list[list[float | None]]


def histograms(figures: Figures) -> str:
  """Draws how often proposals are solved in a run's first and last third."""
  counts_of_runs = [_solved_counts(run) for run in figures.runs]
  for run in figures.runs:
    found = {n for n in run.values if re.fullmatch(sections.SOLVED, n)}
    figures.drawn |= found
  return "".join(
    _histogram(task_type, run, counts[task_type], len(figures.runs) > 1)
    for task_type in dict.fromkeys(
      t for counts in counts_of_runs for t in counts
    )
    for run, counts in zip(figures.runs, counts_of_runs, strict=True)
    if task_type in counts
  )


def _solved_counts(run: LoggedRun) -> dict[str, Counts]:
  """Returns, by task type, the proposals solved 0, 1, 2, ... times."""
  by_type: dict[str, dict[int, list[float | None]]] = {}
  for name, values in run.values.items():
    if match := re.fullmatch(sections.SOLVED, name):
      by_type.setdefault(match[1], {})[int(match[2])] = values
  unknown: list[float | None] = [None] * len(run.steps)
  return {
    task_type: [
      by_solved.get(solved, unknown) for solved in range(max(by_solved) + 1)
    ]
    for task_type, by_solved in by_type.items()
  }


def _histogram(
  task_type: str, run: LoggedRun, counts: Counts, show_name: bool
) -> str:
  title = f"Proposals by correct responses: {task_type}"
  if show_name:
    title = f"{title}, {run.name}"
  third = -(-len(run.steps) // 3)
  parts = {
    f"first {third} steps": slice(None, third),
    f"last {third} steps": slice(-third, None),
  }
  sums = {
    part: [sum(value or 0.0 for value in values[steps]) for values in counts]
    for part, steps in parts.items()
  }
  names = [str(solved) for solved in range(len(counts))]
  keys = "".join(charts.area_key(part, i) for i, part in enumerate(sums))
  drawing = charts.bars(sums, names, "proposals")
  return figure(title, drawing, keys, "x-axis: correct responses to a proposal")


def phases(figures: Figures) -> str:
  """Draws the stacked seconds of a step's phases, one figure per run."""
  of_runs = [_phases(run) for run in figures.runs]
  figures.drawn |= {f"time/{name}" for _, series in of_runs for name in series}
  totals = sorted(
    sum(v for v in step if v is not None)
    for _, series in of_runs
    for step in zip(*series.values(), strict=True)
  )
  if not totals:
    return ""
  # Clip the slowest steps. The first step compiles, and would flatten all
  # others.
  percentile_95 = min(len(totals) - 1, math.ceil(0.95 * len(totals)) - 1)
  limits = axes.value_range([0.0, totals[percentile_95] * 1.25])
  last = max(run.steps[-1] for run in figures.runs)
  return "".join(
    figure(
      "Seconds of a step" + (f", {run.name}" if len(figures.runs) > 1 else ""),
      charts.stacked(steps, series, limits[1], last, "seconds"),
      "".join(charts.area_key(name, i) for i, name in enumerate(series)),
      _clipped(series, limits[1]),
    )
    for run, (steps, series) in zip(figures.runs, of_runs, strict=True)
    if series
  )


def _phases(run: LoggedRun) -> tuple[list[int], dict[str, list[float | None]]]:
  """Returns the steps with phases, and the seconds of each phase."""
  series = {
    name: run.values[f"time/{name}"]
    for name in sections.PHASES
    if f"time/{name}" in run.values
  }
  kept = [
    i
    for i, step in enumerate(zip(*series.values(), strict=True))
    if any(seconds is not None for seconds in step)
  ]
  return (
    [run.steps[i] for i in kept],
    {name: [values[i] for i in kept] for name, values in series.items()},
  )


def _clipped(series: charts.Series, top: float) -> str:
  """Returns a note on how many steps exceed the axis, and the longest one."""
  steps = [
    sum(v or 0.0 for v in step) for step in zip(*series.values(), strict=True)
  ]
  longer = [seconds for seconds in steps if seconds > top]
  if not longer:
    return ""
  is_are = "step is" if len(longer) == 1 else "steps are"
  return f"{len(longer)} {is_are} cut off, up to {axes.number(max(longer))} s"


def by_type(figures: Figures) -> list[tuple[str, str]]:
  """Draws rewards and lengths, one figure per task type, quantity and role.

  Returns:
    (task type, its figures) for each task type.
  """
  names = [n for run in figures.runs for n in run.names(sections.TYPED_REWARD)]
  pairs = dict.fromkeys(tuple(name.split(" ")) for name in names)
  types = list(dict.fromkeys(kind for kind, _ in pairs))
  shown: dict[str, list[str]] = {kind: [] for kind in types}
  for title, quantity in (("reward", "reward"), ("response", "tokens")):
    for role in dict.fromkeys(role for _, role in pairs):
      pattern = rf"{quantity}/[^/]+/([^/]+)/{re.escape(role)}/mean"
      chart = sections.Chart(f"{role}, {title}", pattern, panels=True)
      for kind, drawing in figures.by_label(chart).items():
        shown.setdefault(kind, []).append(drawing)
  return [(kind, "".join(drawings)) for kind, drawings in shown.items()]
