"""The figures of a page: charts with a title, a legend and what is healthy.

Each is made for every run, one after the other: the page's columns are runs.
"""

import html
import math
import re
from collections.abc import Sequence

from azr_jax.report import charts, sections
from azr_jax.report.reading import Run
from azr_jax.report.sections import Chart


def chart_figures(runs: Sequence[Run], chart: Chart, drawn: set[str]) -> str:
  """A figure per run, with one upright axis; "" where nothing matches.

  What is in `drawn` is left out; what matches is put there.
  """
  found = []
  for run in runs:
    series = run.series(chart.pattern, drawn)
    if chart.missing is not None:
      series = {
        label: [chart.missing if v is None else v for v in values]
        for label, values in series.items()
      }
    found.append({k: v for k, v in series.items() if charts.known({k: v})})
  for run in runs:
    drawn |= {n for n in run.values if re.fullmatch(chart.pattern, n)}
  values = [v for series in found for v in charts.known(series)]
  if not values:
    return ""
  limits = charts.value_range(values)
  last = max(run.steps[-1] for run in runs)
  labels = [*dict.fromkeys(label for series in found for label in series)]
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
      else _nothing(),
      charts.legend(labels, series),
      chart.healthy,
    )
    for run, series in zip(runs, found, strict=True)
  )


def _nothing() -> str:
  return '<p class="nothing">not measured in this run</p>'


def _figure(
  title: str,
  run: str,
  drawing: str,
  legend: str,
  healthy: str = "",
) -> str:
  own = f" <small>{html.escape(run)}</small>" if run else ""
  hint = f'<p class="hint">{html.escape(healthy)}</p>' if healthy else ""
  return (
    f"<figure><figcaption>{html.escape(title)}{own}</figcaption>{drawing}"
    f'<div class="legend">{legend}</div>{hint}</figure>'
  )


def histograms(runs: Sequence[Run], drawn: set[str]) -> str:
  """How often proposals were solved, in the first and the last third."""
  found = [_solved(run) for run in runs]
  for run in runs:
    drawn |= {n for n in run.values if re.fullmatch(sections.SOLVED, n)}
  return "".join(
    _histogram(label, run, own.get(label), len(runs) > 1)
    for label in dict.fromkeys(label for own in found for label in own)
    for run, own in zip(runs, found, strict=True)
  )


Counts = list[list[float | None]]


def _solved(run: Run) -> dict[str, Counts]:
  """By task type and number of right answers, the proposals of each step."""
  found: dict[str, dict[int, list[float | None]]] = {}
  for name, values in run.values.items():
    if match := re.fullmatch(sections.SOLVED, name):
      found.setdefault(match[1], {})[int(match[2])] = values
  nothing: list[float | None] = [None] * len(run.steps)
  return {
    label: [own.get(right, nothing) for right in range(max(own) + 1)]
    for label, own in found.items()
  }


def _histogram(
  label: str, run: Run, counts: Counts | None, several: bool
) -> str:
  title = f"Proposals by right answers: {label}"
  name = run.name if several else ""
  if counts is None:
    return _figure(title, name, _nothing(), "")
  third = -(-len(run.steps) // 3)
  parts = {
    f"first {third} steps": slice(None, third),
    f"last {third} steps": slice(-third, None),
  }
  sums = {
    part: [sum(value or 0.0 for value in own[where]) for own in counts]
    for part, where in parts.items()
  }
  names = [str(right) for right in range(len(counts))]
  drawing = charts.bars(sums, names)
  return _figure(title, name, drawing, charts.legend(list(sums), sums))


def phases(runs: Sequence[Run], drawn: set[str]) -> str:
  """Seconds of a step's phases, one on top of the other."""
  found = []
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
    found.append(series)
  tops = [
    sum(v for v in step if v is not None)
    for series in found
    for step in zip(*series.values(), strict=True)
  ]
  if not tops:
    return ""
  # The first step compiles, and would leave no room for the others.
  tops.sort()
  top = tops[min(len(tops) - 1, math.ceil(0.95 * len(tops)) - 1)] * 1.25
  limits = charts.value_range([0.0, top])
  last = max(run.steps[-1] for run in runs)
  return "".join(
    _figure(
      "Seconds of a step",
      run.name if len(runs) > 1 else "",
      charts.stacked(run.steps, series, limits[1], last),
      charts.legend(list(series), series),
    )
    for run, series in zip(runs, found, strict=True)
  )


def others(runs: Sequence[Run], drawn: set[str]) -> str:
  """A chart for each family of metrics that no other chart took."""
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
    )
    for family in families
  )
