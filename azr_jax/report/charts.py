"""Charts as SVG text, whose colours come from the page's style."""

import html
import itertools
import math
from collections.abc import Collection, Mapping, Sequence

WIDTH, HEIGHT = 360, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 8, 22
_MOST_POINTS = 400
COLOURS = 8  # That the style has, as classes s0, s1, ...
Series = Mapping[str, Sequence[float | None]]


def value_range(values: Sequence[float]) -> tuple[float, float]:
  """Round numbers around values; some room where they are all the same."""
  low, high = min(values), max(values)
  if high - low < 1e-12 * max(abs(low), abs(high)):
    low = high
  if low == high and 0 <= low <= 1:  # A share, most likely.
    return 0.0, 1.0
  if low == high:
    low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    if min(values) >= 0:
      low = max(low, 0.0)
  step = _round_step((high - low) / 4)
  return math.floor(low / step) * step, math.ceil(high / step) * step


def _round_step(step: float) -> float:
  """The next of 1, 2, 5, 10, ... times a power of ten."""
  power = 10.0 ** math.floor(math.log10(step))
  return next(m * power for m in (1, 2, 5, 10) if m * power >= step * 0.999)


def known(series: Series) -> list[float]:
  """All values."""
  return [
    value for values in series.values() for value in values if value is not None
  ]


def lines(
  steps: Sequence[int],
  series: Series,
  limits: tuple[float, float],
  last_step: int,
) -> str:
  """A line for each series over the steps.

  Args:
    steps: of the values.
    series: values by label; a line breaks where there is None.
    limits: of the upright axis.
    last_step: the end of the other one.

  Returns:
    An `svg` element; its polylines carry their label.
  """
  drawn = []
  for place, (label, values) in enumerate(series.items()):
    for part in _parts(steps, values):
      points = " ".join(
        f"{_x(step, last_step):.1f},{_y(value, limits):.1f}"
        for step, value in part
      )
      colour = f"s{place % COLOURS} d{place // COLOURS % 3}"
      # A point alone is a line of no length, which has round ends.
      points = points if len(part) > 1 else f"{points} {points}"
      drawn.append(
        f'<polyline class="{colour}" data-label="{html.escape(label)}" '
        f'points="{points}"/>'
      )
  return _frame(limits, last_step, "".join(drawn))


def stacked(
  steps: Sequence[int], series: Series, top: float, last_step: int
) -> str:
  """Areas on top of each other, such as the seconds of a step's phases.

  What is above `top` is cut off.
  """
  below = [0.0] * len(steps)
  drawn = []
  for place, (label, values) in enumerate(series.items()):
    above = [low + (v or 0.0) for low, v in zip(below, values, strict=True)]
    upper = _binned(steps, [min(value, top) for value in above])
    lower = _binned(steps, [min(value, top) for value in below])
    edge = [*upper, *reversed(lower)]
    points = " ".join(
      f"{_x(step, last_step):.1f},{_y(value or 0.0, (0.0, top)):.1f}"
      for step, value in edge
    )
    drawn.append(
      f'<polygon class="s{place % COLOURS}" data-label="{html.escape(label)}" '
      f'points="{points}"/>'
    )
    below = above
  return _frame((0.0, top), last_step, "".join(drawn))


def bars(counts: Mapping[str, Sequence[float]], names: Sequence[str]) -> str:
  """Groups of bars: a group per name, a bar per label."""
  top = value_range([0.0, *(c for own in counts.values() for c in own)])[1]
  drawn = []
  wide = (WIDTH - _LEFT - _RIGHT) / max(len(names), 1)
  each = 0.8 * wide / max(len(counts), 1)
  for place, (label, own) in enumerate(counts.items()):
    for index, count in enumerate(own):
      x = _LEFT + wide * (index + 0.1) + each * place
      y = _y(count, (0.0, top))
      title = html.escape(f"{label}, {names[index]}: {count:g}")
      drawn.append(
        f'<rect class="s{place % COLOURS}" x="{x:.1f}" y="{y:.1f}" '
        f'width="{each:.1f}" height="{HEIGHT - _BOTTOM - y:.1f}">'
        f"<title>{title}</title></rect>"
      )
  for index, name in enumerate(names):
    x = _LEFT + wide * (index + 0.5)
    drawn.append(_text(x, HEIGHT - 6, name, "middle"))
  return _svg(_upright((0.0, top)) + "".join(drawn))


def legend(labels: Sequence[str], shown: Collection[str]) -> str:
  """Those of the labels that are shown, with the colours they have of all."""
  return "".join(
    f'<span class="key s{place % COLOURS} d{place // COLOURS % 3}">'
    f"{html.escape(label)}</span>"
    for place, label in enumerate(labels)
    if label in shown
  )


def _parts(
  steps: Sequence[int], values: Sequence[float | None]
) -> list[list[tuple[float, float]]]:
  """Runs of values that can be drawn as one line."""
  parts: list[list[tuple[float, float]]] = [[]]
  for step, value in _binned(steps, values):
    if value is None:
      parts.append([])
    else:
      parts[-1].append((step, value))
  parts = [part for part in parts if part]
  # What is measured every so many steps is a line, too.
  points = [point for part in parts for point in part]
  gaps = {round(b[0] - a[0], 6) for a, b in itertools.pairwise(points[:-1])}
  if len(parts) > 1 and len(gaps) == 1:
    return [points]
  return parts


def _binned(
  steps: Sequence[int], values: Sequence[float | None]
) -> list[tuple[float, float | None]]:
  """At most `_MOST_POINTS` points: the means of neighbours that are known."""
  size = -(-len(steps) // _MOST_POINTS) or 1
  points: list[tuple[float, float | None]] = []
  for start in range(0, len(steps), size):
    near = steps[start : start + size]
    known = [v for v in values[start : start + size] if v is not None]
    mean = sum(known) / len(known) if known else None
    points.append((sum(near) / len(near), mean))
  return points


def _x(step: float, last_step: int) -> float:
  return _LEFT + (WIDTH - _LEFT - _RIGHT) * step / max(last_step, 1)


def _y(value: float, limits: tuple[float, float]) -> float:
  low, high = limits
  return _TOP + (HEIGHT - _TOP - _BOTTOM) * (high - value) / (high - low)


def _frame(limits: tuple[float, float], last_step: int, inside: str) -> str:
  marks = {last_step: "end", last_step // 2: "middle", 0: "start"}
  across = "".join(
    _text(_x(step, last_step), HEIGHT - 6, f"step {step}", anchor)
    for step, anchor in marks.items()
  )
  data = (
    f'data-low="{limits[0]:g}" data-high="{limits[1]:g}" '
    f'data-last="{last_step}"'
  )
  return _svg(_upright(limits) + across + inside, data)


def _upright(limits: tuple[float, float]) -> str:
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
  """A number with as many digits as its axis needs."""
  if abs(value) >= 10_000:
    return f"{value / 1000:g}k"
  digits = max(0, -math.floor(math.log10(step)))
  return f"{value:.{digits}f}" if digits <= 4 else f"{value:.1e}"


def _text(x: float, y: float, text: str, anchor: str) -> str:
  return (
    f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
    f"{html.escape(text)}</text>"
  )


def _svg(inside: str, data: str = "") -> str:
  frame = f'data-left="{_LEFT}" data-right="{_RIGHT}" data-top="{_TOP}" '
  frame += f'data-bottom="{_BOTTOM}" {data}'
  return (
    f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" {frame}>{inside}</svg>'
  )
