"""Draws the figures of a page: charts with a title, a legend and a hint.

A function returns one figure per run, in the order of the runs, because the
page has one column per run. It adds the names of the metrics that it has drawn
to the set `drawn`; `others` draws the rest.
"""

import html
import math
import re
from collections.abc import Mapping, Sequence

from azr_jax.report import charts, sections
from azr_jax.report.reading import Run
from azr_jax.report.sections import Chart


def chart_figures(
  runs: Sequence[Run],
  chart: Chart,
  drawn: set[str],
  healthy: Mapping[str, str],
) -> str:
  """Draws a chart for each run, with the same vertical axis.

  Args:
    runs: the runs to draw.
    chart: the chart.
    drawn: names of metrics that are left out; the chart's are added.
    healthy: what a healthy value looks like, by family of metrics.

  Returns:
    HTML; "" if no run has a metric of the chart.
  """
  series_of_runs = []
  for run in runs:
    series = run.series(chart.pattern, drawn)
    if chart.missing is not None:
      series = {
        label: [chart.missing if v is None else v for v in values]
        for label, values in series.items()
      }
    series_of_runs.append(
      {k: v for k, v in series.items() if charts.known({k: v})}
    )
  for run in runs:
    drawn |= {n for n in run.values if re.fullmatch(chart.pattern, n)}
  values = [v for series in series_of_runs for v in charts.known(series)]
  if not values:
    return ""
  limits = charts.value_range(values)
  last = max(run.steps[-1] for run in runs)
  labels = [
    *dict.fromkeys(label for series in series_of_runs for label in series)
  ]
  return "".join(
    _figure(
      chart.title,
      run.name if len(runs) > 1 else "",
      charts.lines(
        run.steps,
        # A label has the same colour in every run.
        {
          label: series.get(label, []) or [None] * len(run.steps)
          for label in labels
        },
        limits,
        last,
      )
      if series
      else _no_chart(),
      charts.legend(labels, series),
      healthy.get(chart.family, ""),
    )
    for run, series in zip(runs, series_of_runs, strict=True)
  )


def _no_chart() -> str:
  return '<p class="nothing">not measured in this run</p>'


def _figure(
  title: str,
  run: str,
  drawing: str,
  legend: str,
  hint: str = "",
) -> str:
  name = f" <small>{html.escape(run)}</small>" if run else ""
  if hint:
    hint = f'<p class="hint">{html.escape(hint)}</p>'
  return (
    f"<figure><figcaption>{html.escape(title)}{name}</figcaption>{drawing}"
    f'<div class="legend">{legend}</div>{hint}</figure>'
  )


def histograms(runs: Sequence[Run], drawn: set[str]) -> str:
  """Draws how often proposals were solved in a run's first and last third."""
  counts_of_runs = [_solved_counts(run) for run in runs]
  for run in runs:
    drawn |= {n for n in run.values if re.fullmatch(sections.SOLVED, n)}
  return "".join(
    _histogram(task_type, run, counts.get(task_type), len(runs) > 1)
    for task_type in dict.fromkeys(
      t for counts in counts_of_runs for t in counts
    )
    for run, counts in zip(runs, counts_of_runs, strict=True)
  )


# [number of correct responses][step] -> proposals, or None.
Counts = list[list[float | None]]


def _solved_counts(run: Run) -> dict[str, Counts]:
  """Returns for each task type how many proposals were solved how often."""
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
  task_type: str, run: Run, counts: Counts | None, show_name: bool
) -> str:
  title = f"Proposals by correct responses: {task_type}"
  name = run.name if show_name else ""
  if counts is None:
    return _figure(title, name, _no_chart(), "")
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
  drawing = charts.bars(sums, names)
  return _figure(title, name, drawing, charts.legend(list(sums), sums))


def phases(runs: Sequence[Run], drawn: set[str]) -> str:
  """Draws the seconds of a step's phases on top of each other."""
  series_of_runs = []
  for run in runs:
    for phases in sections.PHASES:
      series = {
        name: run.values[f"time/{name}"]
        for name in phases
        if f"time/{name}" in run.values
      }
      if len(series) > 1 and phases[0] in series or len(series) > 2:
        break
    drawn |= {f"time/{name}" for name in series}
    series_of_runs.append(series)
  totals = sorted(
    sum(v for v in step if v is not None)
    for series in series_of_runs
    for step in zip(*series.values(), strict=True)
  )
  if not totals:
    return ""
  # The slowest steps are clipped: the first one compiles, and would otherwise
  # flatten all others.
  percentile_95 = min(len(totals) - 1, math.ceil(0.95 * len(totals)) - 1)
  top = totals[percentile_95] * 1.25
  limits = charts.value_range([0.0, top])
  last = max(run.steps[-1] for run in runs)
  return "".join(
    _figure(
      "Seconds of a step",
      run.name if len(runs) > 1 else "",
      charts.stacked(run.steps, series, limits[1], last),
      charts.legend(list(series), series),
    )
    for run, series in zip(runs, series_of_runs, strict=True)
  )


def others(runs: Sequence[Run], drawn: set[str]) -> str:
  """Draws one chart per family of metrics that no other chart has drawn."""
  left = {name for run in runs for name in run.values} - drawn
  families = dict.fromkeys(
    "/".join(name.split("/")[:2]) if name.count("/") > 1 else name.split("/")[0]
    for name in sorted(left)
  )
  return "".join(
    chart_figures(
      runs,
      Chart(family, rf"{re.escape(family)}/(.+)"),
      drawn,
      healthy={},
    )
    for family in families
  )
