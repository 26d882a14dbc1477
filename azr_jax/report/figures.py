"""Draws the figures of a page: charts with a title, units and a legend.

For one run, a chart shows one line per metric, or one figure per metric where
the paper does. For several runs, each metric has its own figure with a line per
run. Metrics that are constant in every run are only listed.
"""

import dataclasses
import html
import re
from collections.abc import Mapping, Sequence

from azr_jax.report import axes, changes, charts, units
from azr_jax.report.charts import Line
from azr_jax.report.reading import LoggedRun
from azr_jax.report.references import Reference, References
from azr_jax.report.sections import Chart

# Lines share a figure unless one is flatter than another by this factor.
_FLATTER = 30.0
# Two lines coincide if their distance never exceeds this fraction of the axis.
_SAME = 0.004


class Figures:
  """Draws charts of runs, and tracks which metrics have been drawn."""

  def __init__(
    self,
    runs: Sequence[LoggedRun],
    smooth: int,
    references: References | None = None,
  ):
    """Creates the figures of a page.

    Args:
      runs: the runs to draw.
      smooth: the window of the running mean in steps. 1 turns it off.
      references: reference values to draw, or None.
    """
    self.runs = runs
    self.smooth = smooth
    self._references = references or References({})
    self.drawn: set[str] = set()
    self._constant: list[str] = []

  def take_constants(self) -> list[str]:
    """Returns the metrics that were found constant since the last call."""
    found, self._constant = self._constant, []
    return found

  def figure(self, chart: Chart, hint: str = "") -> str:
    """Draws a chart; returns its figures, or "" if there is nothing to draw.

    Args:
      chart: the chart. Its metrics count as drawn.
      hint: a foldable description of a healthy run.
    """
    shown = "".join(self.by_label(chart).values())
    if hint and shown:
      note = (
        f'<details class="hint"><summary>what a healthy run shows</summary>'
        f"{html.escape(hint)}</details>"
      )
      shown = shown.replace("</figure>", f"{note}</figure>", 1)
    return shown

  def by_label(self, chart: Chart) -> dict[str, str]:
    """Draws a chart; returns its figures by the label of their first line."""
    names = [run.names(chart.pattern, self.drawn) for run in self.runs]
    for found in names:
      self.drawn |= {*found.values()}
    lines: dict[str, list[Line]] = {}
    unit_of: dict[str, str] = {}
    beside: dict[str, dict[str, Sequence[Reference]]] = {}  # keyed by metric
    for colour, (run, found) in enumerate(zip(self.runs, names, strict=True)):
      for label, name in found.items():
        line = _line(run, name, chart.missing, colour)
        if line.known:
          lines.setdefault(label, []).append(line)
          unit_of[label] = chart.unit or units.unit(name)
          shown = self._references.take(name)
          beside.setdefault(label, {})[name] = shown
    references = {
      label: [one for found in of_label.values() for one in found]
      for label, of_label in beside.items()
    }
    for label in list(lines):
      # A line with references is drawn even if it is constant.
      if references[label]:
        continue
      if text := self._constant_text(lines[label]):
        title = _title(chart.title, label)
        self._constant.append(f"{html.escape(title)}: {text}")
        del lines[label]
    figures: dict[str, str] = {}
    for group in _groups(lines, unit_of):
      figures |= self._draw(chart, group, lines, unit_of[group[0]], references)
    return {label: figures[label] for label in lines if label in figures}

  def _constant_text(self, lines: Sequence[Line]) -> str:
    """Returns the values of a metric that is constant in all runs, or ""."""
    if not all(axes.is_constant(line.known) for line in lines):
      return ""
    if all(len(line.known) < 2 for line in lines):
      return ""
    values = {line.label: axes.number(line.known[0]) for line in lines}
    if len({*values.values()}) == 1:
      return next(iter(values.values()))
    return ", ".join(f"{v} ({html.escape(k)})" for k, v in values.items())

  def _draw(
    self,
    chart: Chart,
    labels: Sequence[str],
    lines: Mapping[str, Sequence[Line]],
    unit: str,
    references: Mapping[str, Sequence[Reference]],
  ) -> dict[str, str]:
    """Draws metrics of one unit, on axes with the same range."""
    values = [v for label in labels for one in lines[label] for v in one.known]
    limits = axes.widened(
      axes.chart_range(values, unit),
      [
        value
        for label in labels
        for one in references[label]
        for value in one.values.values()
      ],
    )
    if len(self.runs) > 1 or chart.panels:
      return {
        label: self._plot(
          _title(chart.title, label),
          lines[label],
          limits,
          unit,
          references[label],
        )
        for label in labels
      }
    together = [
      Line(label, one.steps, one.values, one.errors, colour)
      for colour, label in enumerate(labels)
      for one in lines[label]
    ]
    title = chart.title
    if len(labels) == 1 or len(labels) < len(lines):
      title = _title(title, ", ".join(labels[:3]) + ", ..." * (len(labels) > 3))
    # In a figure of several metrics, a reference names its metric.
    named = [
      dataclasses.replace(one, label=f"{one.label}, {label}")
      if len(labels) > 1
      else one
      for label in labels
      for one in references[label]
    ]
    return {labels[0]: self._plot(title, together, limits, unit, named)}

  def _plot(
    self,
    title: str,
    lines: Sequence[Line],
    limits: tuple[float, float],
    unit: str,
    references: Sequence[Reference],
  ) -> str:
    """Returns a figure of lines; its axes include all references."""
    last = max(run.steps[-1] for run in self.runs)
    last = max([last, *(one.last_step for one in references)])
    absent = {r.name for r in self.runs} - {line.label for line in lines}
    lines = [
      *lines,
      *(
        one.line(number, last)
        for number, one in enumerate(references, len(lines))
      ),
    ]
    drawing = charts.lines(lines, limits, last, unit, self.smooth)
    keys = "".join(charts.key(line, _ends(line)) for line in lines)
    notes = [_same(lines, limits), _beyond(lines, limits)]
    if len(self.runs) > 1 and absent:
      notes.append(f"not measured in {', '.join(sorted(absent))}")
    return figure(title, drawing, keys, "; ".join(filter(None, notes)))

  def others(self) -> str:
    """Draws the metrics that no other chart has drawn, by family."""
    left = {name for run in self.runs for name in run.values} - self.drawn
    left = {name for name in left if not name.endswith("_stderr")}
    families = dict.fromkeys(
      "/".join(name.split("/")[:2])
      if name.count("/") > 1
      else name.split("/")[0]
      for name in sorted(left)
    )
    return "".join(
      self.figure(Chart(family, rf"{re.escape(family)}/(.+)"))
      for family in families
    )


def constants(found: Sequence[str]) -> str:
  """Returns the constant metrics as a foldable HTML list."""
  if not found:
    return ""
  items = "".join(f"<li>{text}</li>" for text in found)
  return (
    f'<details class="constant"><summary>{len(found)} constant metrics without '
    f"a figure</summary><ul>{items}</ul></details>"
  )


def figure(title: str, drawing: str, keys: str, note: str = "") -> str:
  """Returns a figure with a caption above it and a legend and note below."""
  if note:
    note = f'<p class="note">{html.escape(note)}</p>'
  return (
    f"<figure><figcaption>{html.escape(title)}</figcaption>{drawing}"
    f'<div class="legend">{keys}</div>{note}</figure>'
  )


def _title(title: str, label: str) -> str:
  return f"{title}: {label}" if label else title


def _line(
  run: LoggedRun, name: str, missing: float | None, colour: int
) -> Line:
  """Returns the line of a run's metric, labelled with the run's name."""
  values = run.values[name]
  if missing is not None:
    values = [missing if value is None else value for value in values]
  errors = run.values.get(f"{name}_stderr", ())
  return Line(run.name, run.steps, values, errors, colour)


def _groups(
  lines: Mapping[str, Sequence[Line]], unit_of: Mapping[str, str]
) -> list[list[str]]:
  """Groups labels that can share an axis: same unit, similar size."""
  size = {
    label: max(abs(v) for one in found for v in one.known)
    for label, found in lines.items()
  }
  groups: list[list[str]] = []
  for label in sorted(lines, key=lambda label: (unit_of[label], -size[label])):
    last = groups[-1] if groups else []
    if (
      last
      and unit_of[last[0]] == unit_of[label]
      and (
        unit_of[label] == units.FRACTION
        or not size[label]
        or size[label] * _FLATTER >= size[last[0]]
      )
    ):
      last.append(label)
    else:
      groups.append([label])
  # Restore the order of the metrics.
  order = list(lines)
  groups = [sorted(group, key=order.index) for group in groups]
  return sorted(groups, key=lambda group: order.index(group[0]))


def _ends(line: Line) -> str:
  """Returns the means of a line's first and last steps as text."""
  if line.kind == charts.LEVEL:
    return axes.number(line.known[0])
  change = changes.of_ends(line.values, changes.window(len(line.steps)))
  if not line.is_dense:
    change = changes.of_ends(line.known, 1)
  if change is None:
    return axes.number(line.known[-1])
  first, last = change.first.value, change.last.value
  return f"{axes.number(first)} \N{RIGHTWARDS ARROW} {axes.number(last)}"


def _same(lines: Sequence[Line], limits: tuple[float, float]) -> str:
  """Returns a note on lines that coincide and so hide each other."""
  apart = _SAME * (limits[1] - limits[0])
  groups: list[list[Line]] = []
  for line in lines:
    for group in groups:
      other = group[0]
      if list(other.steps) == list(line.steps) and all(
        (a is None) == (b is None) and abs((a or 0.0) - (b or 0.0)) <= apart
        for a, b in zip(line.values, other.values, strict=True)
      ):
        group.append(line)
        break
    else:
      groups.append([line])
  return "; ".join(
    f"{' and '.join(line.label for line in group)} are the same line"
    for group in groups
    if len(group) > 1
  )


def _beyond(lines: Sequence[Line], limits: tuple[float, float]) -> str:
  """Returns a note on the values beyond the axis."""
  low, high = limits
  margin = 1e-9 * (high - low)
  values = [v for line in lines for v in line.known]
  beyond = [v for v in values if v < low - margin or v > high + margin]
  if not beyond:
    return ""
  ends = [v for v in (min(beyond), max(beyond)) if not low <= v <= high]
  words = " and ".join(dict.fromkeys(map(axes.number, ends)))
  lie = "value lies" if len(beyond) == 1 else "values lie"
  return f"{len(beyond)} {lie} beyond the axis, as far as {words}"
