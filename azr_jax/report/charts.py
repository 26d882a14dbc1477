"""Draws charts as SVG text; their colours come from the page's stylesheet."""

import html
import itertools
import math
from collections.abc import Collection, Mapping, Sequence

WIDTH, HEIGHT = 360, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 8, 22
_MAX_POINTS = 400
COLOURS = 8  # the stylesheet's classes s0, s1, ...
_DASHES = 3  # the stylesheet's classes d0, d1, ...
# Label -> one value or None per step.
Series = Mapping[str, Sequence[float | None]]


def value_range(values: Sequence[float]) -> tuple[float, float]:
  """Returns the ends of an axis: round numbers around the values.

  If all values are equal, the axis is 0 to 1 for a value in it, and otherwise
  extends to both sides of the value.
  """
  low, high = min(values), max(values)
  if high - low < 1e-12 * max(abs(low), abs(high)):
    low = high
  if low == high and 0 <= low <= 1:  # probably a fraction
    return 0.0, 1.0
  if low == high:
    low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    if min(values) >= 0:
      low = max(low, 0.0)
  step = _round_step((high - low) / 4)
  return math.floor(low / step) * step, math.ceil(high / step) * step


def _round_step(step: float) -> float:
  """Rounds up to 1, 2, 5 or 10 times a power of ten."""
  power = 10.0 ** math.floor(math.log10(step))
  return next(m * power for m in (1, 2, 5, 10) if m * power >= step * 0.999)


def known(series: Series) -> list[float]:
  """Returns all values that are not None."""
  return [
    value for values in series.values() for value in values if value is not None
  ]


def lines(
  steps: Sequence[int],
  series: Series,
  limits: tuple[float, float],
  last_step: int,
) -> str:
  """Draws a line per series over the steps.

  Args:
    steps: the steps of the values.
    series: values by label; a line is interrupted where the value is None.
    limits: the ends of the vertical axis.
    last_step: the end of the horizontal axis.

  Returns:
    An `svg` element; its polylines have the label as `data-label`.
  """
  shapes = []
  for index, (label, values) in enumerate(series.items()):
    for part in _parts(steps, values):
      points = " ".join(
        f"{_x(step, last_step):.1f},{_y(value, limits):.1f}"
        for step, value in part
      )
      # A single point becomes a line of length 0, whose round ends are visible.
      points = points if len(part) > 1 else f"{points} {points}"
      shapes.append(
        f'<polyline class="{_classes(index)}" '
        f'data-label="{html.escape(label)}" '
        f'points="{points}"/>'
      )
  return _frame(limits, last_step, "".join(shapes))


def stacked(
  steps: Sequence[int], series: Series, top: float, last_step: int
) -> str:
  """Draws areas on top of each other, such as the seconds of a step's phases.

  Args:
    steps: the steps of the values.
    series: values by label, from the lowest area to the highest; None is 0.
    top: the end of the vertical axis; areas are clipped there.
    last_step: the end of the horizontal axis.

  Returns:
    An `svg` element; its polygons have the label as `data-label`.
  """
  below = [0.0] * len(steps)
  shapes = []
  for index, (label, values) in enumerate(series.items()):
    above = [low + (v or 0.0) for low, v in zip(below, values, strict=True)]
    upper = _binned(steps, [min(value, top) for value in above])
    lower = _binned(steps, [min(value, top) for value in below])
    edge = [*upper, *reversed(lower)]
    points = " ".join(
      f"{_x(step, last_step):.1f},{_y(value or 0.0, (0.0, top)):.1f}"
      for step, value in edge
    )
    shapes.append(
      f'<polygon class="s{index % COLOURS}" data-label="{html.escape(label)}" '
      f'points="{points}"/>'
    )
    below = above
  return _frame((0.0, top), last_step, "".join(shapes))


def bars(counts: Mapping[str, Sequence[float]], names: Sequence[str]) -> str:
  """Draws groups of bars.

  Args:
    counts: for each label, one number per name.
    names: the names of the groups; each has one bar per label.

  Returns:
    An `svg` element.
  """
  all_counts = [count for row in counts.values() for count in row]
  top = value_range([0.0, *all_counts])[1]
  shapes = []
  group_width = (WIDTH - _LEFT - _RIGHT) / max(len(names), 1)
  bar_width = 0.8 * group_width / max(len(counts), 1)
  for index, (label, row) in enumerate(counts.items()):
    for group, count in enumerate(row):
      x = _LEFT + group_width * (group + 0.1) + bar_width * index
      y = _y(count, (0.0, top))
      title = html.escape(f"{label}, {names[group]}: {count:g}")
      shapes.append(
        f'<rect class="s{index % COLOURS}" x="{x:.1f}" y="{y:.1f}" '
        f'width="{bar_width:.1f}" height="{HEIGHT - _BOTTOM - y:.1f}">'
        f"<title>{title}</title></rect>"
      )
  for group, name in enumerate(names):
    x = _LEFT + group_width * (group + 0.5)
    shapes.append(_text(x, HEIGHT - 6, name, "middle"))
  return _svg(_vertical_axis((0.0, top)) + "".join(shapes))


def legend(labels: Sequence[str], shown: Collection[str]) -> str:
  """Returns the legend of the shown labels.

  A label's colour depends on its index among all labels, so that it is the same
  in every run's chart.
  """
  return "".join(
    f'<span class="key {_classes(index)}">{html.escape(label)}</span>'
    for index, label in enumerate(labels)
    if label in shown
  )


def _classes(index: int) -> str:
  """Returns the classes of a series' colour and dashes."""
  return f"s{index % COLOURS} d{index // COLOURS % _DASHES}"


def _parts(
  steps: Sequence[int], values: Sequence[float | None]
) -> list[list[tuple[float, float]]]:
  """Splits a series into runs of points, each to be drawn as one line."""
  parts: list[list[tuple[float, float]]] = [[]]
  for step, value in _binned(steps, values):
    if value is None:
      parts.append([])
    else:
      parts[-1].append((step, value))
  parts = [part for part in parts if part]
  # Values at regular intervals, as of evaluations, are connected to one line.
  points = [point for part in parts for point in part]
  gaps = {round(b[0] - a[0], 6) for a, b in itertools.pairwise(points[:-1])}
  if len(parts) > 1 and len(gaps) == 1:
    return [points]
  return parts


def _binned(
  steps: Sequence[int], values: Sequence[float | None]
) -> list[tuple[float, float | None]]:
  """Thins a series to at most `_MAX_POINTS` means of neighbouring values."""
  size = -(-len(steps) // _MAX_POINTS) or 1
  points: list[tuple[float, float | None]] = []
  for start in range(0, len(steps), size):
    bin_steps = steps[start : start + size]
    known = [v for v in values[start : start + size] if v is not None]
    mean = sum(known) / len(known) if known else None
    points.append((sum(bin_steps) / len(bin_steps), mean))
  return points


def _x(step: float, last_step: int) -> float:
  """Returns the horizontal position of a step, in the units of the SVG."""
  return _LEFT + (WIDTH - _LEFT - _RIGHT) * step / max(last_step, 1)


def _y(value: float, limits: tuple[float, float]) -> float:
  """Returns the vertical position of a value, in the units of the SVG."""
  low, high = limits
  return _TOP + (HEIGHT - _TOP - _BOTTOM) * (high - value) / (high - low)


def _frame(limits: tuple[float, float], last_step: int, shapes: str) -> str:
  """Adds both axes to shapes, and the scales that page.js reads."""
  anchors = {last_step: "end", last_step // 2: "middle", 0: "start"}
  steps = "".join(
    _text(_x(step, last_step), HEIGHT - 6, f"step {step}", anchor)
    for step, anchor in anchors.items()
  )
  data = (
    f'data-low="{limits[0]:g}" data-high="{limits[1]:g}" '
    f'data-last="{last_step}"'
  )
  return _svg(_vertical_axis(limits) + steps + shapes, data)


def _vertical_axis(limits: tuple[float, float]) -> str:
  """Draws grid lines with their values."""
  low, high = limits
  step = _round_step((high - low) / 4)
  count = round((high - low) / step)
  parts = []
  for index in range(count + 1):
    value = low + index * step
    y = _y(value, limits)
    parts.append(
      f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
      + _text(_LEFT - 5, y + 3.5, _short(value, step), "end")
    )
  return "".join(parts)


def _short(value: float, step: float) -> str:
  """Formats a number with as many digits as the axis needs."""
  if abs(value) >= 10_000:
    return f"{value / 1000:g}k"
  digits = max(0, -math.floor(math.log10(step)))
  return f"{value:.{digits}f}" if digits <= 4 else f"{value:.1e}"


def _text(x: float, y: float, text: str, anchor: str) -> str:
  return (
    f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
    f"{html.escape(text)}</text>"
  )


def _svg(content: str, data: str = "") -> str:
  margins = f'data-left="{_LEFT}" data-right="{_RIGHT}" data-top="{_TOP}" '
  margins += f'data-bottom="{_BOTTOM}" {data}'
  return (
    f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" {margins}>{content}</svg>'
  )
