"""Draws charts as SVG text. The page's stylesheet sets their colours."""

import dataclasses
import html
import itertools
from collections.abc import Mapping, Sequence

from azr_jax.report import axes, frame

_MAX_POINTS = 400
COLOURS = 8  # classes s0, s1, ... of the stylesheet
_DASHES = 3  # classes d0, d1, ... of the stylesheet
# A line with values in less than this fraction of its steps, such as an
# evaluation, is not smoothed, and its values are marked.
_DENSE = 0.5
_MAX_MARKS = 60
# Charts with more lines only draw the running means.
_MAX_RAW = 4
# Kinds of lines: a run's metric, and references with and without steps.
RUN, POINTS, LEVEL = "run", "points", "level"
# Label -> one value or None per step.
Series = Mapping[str, Sequence[float | None]]


@dataclasses.dataclass(frozen=True)
class Line:
  """A line of a chart.

  Attributes:
    label: the name in the legend.
    steps: the step of each value.
    values: one value per step. The line is interrupted where it is None.
    errors: standard errors, drawn as bars. () if unknown.
    colour: the index of the colour and dashes.
    kind: `RUN`, `POINTS` or `LEVEL`. Only `RUN` lines are smoothed; `POINTS`
      are marked if they are few.
  """

  label: str
  steps: Sequence[int]
  values: Sequence[float | None]
  errors: Sequence[float | None] = ()
  colour: int = 0
  kind: str = RUN

  @property
  def known(self) -> list[float]:
    """The values that are not None."""
    return [value for value in self.values if value is not None]

  @property
  def is_dense(self) -> bool:
    """Whether most steps have a value. False for `POINTS`."""
    return self.kind != POINTS and len(self.known) > _DENSE * len(self.steps)

  def smoothed(self, window: int) -> list[float | None]:
    """Returns the running mean of each value and `window` - 1 before it."""
    recent: list[float] = []
    means: list[float | None] = []
    for value in self.values:
      if value is None:
        means.append(None)
        continue
      recent = [*recent[-(window - 1) :], value] if window > 1 else [value]
      means.append(sum(recent) / len(recent))
    return means


def lines(
  drawn: Sequence[Line],
  limits: tuple[float, float],
  last_step: int,
  unit: str = "",
  smooth: int = 1,
) -> str:
  """Draws lines over the steps.

  Args:
    drawn: the lines.
    limits: the range of the vertical axis. Values beyond it are drawn at its
      end.
    last_step: the end of the horizontal axis.
    unit: the unit of the vertical axis.
    smooth: the window of the running mean in steps. The mean is drawn over the
      values, or instead of them in a chart with many lines.

  Returns:
    An `svg` element. Its polylines carry the label as `data-label`; those of
    values under a running mean have the class `raw`.
  """
  shapes = []
  for line in drawn:
    is_smooth = smooth > 1 and line.is_dense and line.kind == RUN
    if not is_smooth or len(drawn) <= _MAX_RAW:
      shapes += _polylines(
        line, line.values, limits, last_step, " raw" if is_smooth else ""
      )
    if is_smooth:
      shapes += _polylines(line, line.smoothed(smooth), limits, last_step)
    elif len(line.known) <= _MAX_MARKS and not line.is_dense:
      shapes += _marks(line, limits, last_step)
  return frame.frame(limits, last_step, "".join(shapes), unit)


def _polylines(
  line: Line,
  values: Sequence[float | None],
  limits: tuple[float, float],
  last_step: int,
  kind: str = "",
) -> list[str]:
  """Returns the segments of a line, which is interrupted at None."""
  shapes = []
  for part in _parts(line.steps, values):
    points = " ".join(
      f"{frame.x_of(step, last_step):.1f},{frame.y_of(value, limits):.1f}"
      for step, value in part
    )
    # A single point becomes a line of length 0, whose round ends are visible.
    points = points if len(part) > 1 else f"{points} {points}"
    shapes.append(
      f'<polyline class="{_classes(line.colour)}{kind}" '
      f'data-label="{html.escape(line.label)}" points="{points}"/>'
    )
  return shapes


def _marks(
  line: Line, limits: tuple[float, float], last_step: int
) -> list[str]:
  """Returns a dot per value, with an error bar if its error is known."""
  shapes = []
  errors = line.errors or [None] * len(line.values)
  for step, value, error in zip(line.steps, line.values, errors, strict=True):
    if value is None:
      continue
    x, kind = f"{frame.x_of(step, last_step):.1f}", _classes(line.colour)
    y = f"{frame.y_of(value, limits):.1f}"
    shapes.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="2.5"/>')
    if error:
      ends = [f"{frame.y_of(value + e, limits):.1f}" for e in (-error, error)]
      shapes.append(
        f'<line class="bar {kind}" x1="{x}" x2="{x}" '
        f'y1="{ends[0]}" y2="{ends[1]}"/>'
      )
  return shapes


def stacked(
  steps: Sequence[int],
  series: Series,
  top: float,
  last_step: int,
  unit: str = "",
) -> str:
  """Draws stacked areas, such as the seconds of a step's phases.

  Args:
    steps: the step of each value.
    series: values by label, from the lowest area to the highest. None counts
      as 0.
    top: the end of the vertical axis, where areas are clipped.
    last_step: the end of the horizontal axis.
    unit: the unit of the vertical axis.

  Returns:
    An `svg` element. Its polygons carry the label as `data-label`.
  """
  below = [0.0] * len(steps)
  shapes = []
  for index, (label, values) in enumerate(series.items()):
    above = [low + (v or 0.0) for low, v in zip(below, values, strict=True)]
    upper = _binned(steps, [min(value, top) for value in above])
    lower = _binned(steps, [min(value, top) for value in below])
    edge = [*upper, *reversed(lower)]
    limits = 0.0, top
    points = " ".join(
      f"{frame.x_of(step, last_step):.1f},{frame.y_of(value or 0, limits):.1f}"
      for step, value in edge
    )
    shapes.append(
      f'<polygon class="s{index % COLOURS}" data-label="{html.escape(label)}" '
      f'points="{points}"/>'
    )
    below = above
  return frame.frame((0.0, top), last_step, "".join(shapes), unit)


def bars(
  counts: Mapping[str, Sequence[float]], names: Sequence[str], unit: str = ""
) -> str:
  """Draws groups of bars.

  Args:
    counts: for each label, one number per name.
    names: the names of the groups. Each group has one bar per label.
    unit: the unit of the numbers.

  Returns:
    An `svg` element.
  """
  all_counts = [count for row in counts.values() for count in row]
  top = axes.value_range([0.0, *all_counts])[1]
  shapes = []
  group_width = (frame.WIDTH - frame.LEFT - frame.RIGHT) / max(len(names), 1)
  bar_width = 0.8 * group_width / max(len(counts), 1)
  for index, (label, row) in enumerate(counts.items()):
    for group, count in enumerate(row):
      x = frame.LEFT + group_width * (group + 0.1) + bar_width * index
      y = frame.y_of(count, (0.0, top))
      height = frame.HEIGHT - frame.BOTTOM - y
      title = html.escape(f"{label}, {names[group]}: {count:g}")
      shapes.append(
        f'<rect class="s{index % COLOURS}" x="{x:.1f}" y="{y:.1f}" '
        f'width="{bar_width:.1f}" height="{height:.1f}">'
        f"<title>{title}</title></rect>"
      )
  for group, name in enumerate(names):
    x = frame.LEFT + group_width * (group + 0.5)
    shapes.append(frame.text(x, frame.HEIGHT - 6, name, "middle"))
  return frame.svg(frame.vertical_axis((0.0, top), unit) + "".join(shapes))


def key(line: Line, note: str = "") -> str:
  """Returns a line's legend entry, with a note in bold."""
  return area_key(line.label, line.colour, note)


def area_key(label: str, colour: int, note: str = "") -> str:
  """Returns the legend entry of a colour, with a note in bold."""
  if note:
    note = f" <b>{html.escape(note)}</b>"
  return (
    f'<span class="key {_classes(colour)}">{html.escape(label)}{note}</span>'
  )


def _classes(index: int) -> str:
  """Returns the CSS classes of a series' colour and dashes."""
  return f"s{index % COLOURS} d{index // COLOURS % _DASHES}"


def _parts(
  steps: Sequence[int], values: Sequence[float | None]
) -> list[list[tuple[float, float]]]:
  """Splits a series into contiguous parts, each drawn as one line."""
  parts: list[list[tuple[float, float]]] = [[]]
  for step, value in _binned(steps, values):
    if value is None:
      parts.append([])
    else:
      parts[-1].append((step, value))
  parts = [part for part in parts if part]
  # Values at regular intervals, such as evaluations, form one line.
  points = [point for part in parts for point in part]
  gaps = {round(b[0] - a[0], 6) for a, b in itertools.pairwise(points[:-1])}
  if len(parts) > 1 and len(gaps) == 1:
    return [points]
  return parts


def _binned(
  steps: Sequence[int], values: Sequence[float | None]
) -> list[tuple[float, float | None]]:
  """Reduces a series to at most `_MAX_POINTS` means of adjacent values."""
  size = -(-len(steps) // _MAX_POINTS) or 1
  points: list[tuple[float, float | None]] = []
  for start in range(0, len(steps), size):
    bin_steps = steps[start : start + size]
    known = [v for v in values[start : start + size] if v is not None]
    mean = sum(known) / len(known) if known else None
    points.append((sum(bin_steps) / len(bin_steps), mean))
  return points
