"""The frame of a chart: its axes, and positions of values in the SVG."""

import html

from azr_jax.report import axes

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 48, 8, 24, 22


def x_of(step: float, last_step: int) -> float:
  """Returns the horizontal position of a step in SVG units."""
  return LEFT + (WIDTH - LEFT - RIGHT) * step / max(last_step, 1)


def y_of(value: float, limits: tuple[float, float]) -> float:
  """Returns the vertical position of a value in SVG units."""
  low, high = limits
  inside = min(max(value, low), high)
  return TOP + (HEIGHT - TOP - BOTTOM) * (high - inside) / (high - low)


def frame(
  limits: tuple[float, float], last_step: int, shapes: str, unit: str
) -> str:
  """Adds both axes to shapes, and the scales for page.js."""
  anchors = {last_step: "end", last_step // 2: "middle", 0: "start"}
  steps = "".join(
    text(x_of(step, last_step), HEIGHT - 6, f"step {step}", anchor)
    for step, anchor in anchors.items()
  )
  data = (
    f'data-low="{limits[0]:g}" data-high="{limits[1]:g}" '
    f'data-last="{last_step}"'
  )
  return svg(vertical_axis(limits, unit) + steps + shapes, data)


def vertical_axis(limits: tuple[float, float], unit: str) -> str:
  """Draws grid lines with tick labels, and the unit above them."""
  low, high = limits
  step = axes.grid_step(limits)
  count = round((high - low) / step)
  words = " ".join(filter(None, (_times(axes.power(step)), unit)))
  parts = [text(2, 10, words, "start")] if words else []
  for index in range(count + 1):
    value = low + index * step
    y = y_of(value, limits)
    parts.append(
      f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
      + text(LEFT - 5, y + 3.5, axes.tick(value, step), "end")
    )
  return "".join(parts)


def _times(power: int) -> str:
  """Returns the factor of an axis, as in `x 10^3`, or ""."""
  if not power:
    return ""
  digits = str.maketrans(
    "-0123456789",
    "\N{SUPERSCRIPT MINUS}\N{SUPERSCRIPT ZERO}\N{SUPERSCRIPT ONE}"
    "\N{SUPERSCRIPT TWO}\N{SUPERSCRIPT THREE}\N{SUPERSCRIPT FOUR}"
    "\N{SUPERSCRIPT FIVE}\N{SUPERSCRIPT SIX}\N{SUPERSCRIPT SEVEN}"
    "\N{SUPERSCRIPT EIGHT}\N{SUPERSCRIPT NINE}",
  )
  return f"\N{MULTIPLICATION SIGN} 10{str(power).translate(digits)}"


def text(x: float, y: float, words: str, anchor: str) -> str:
  """Returns a `text` element. The anchor is start, middle or end."""
  return (
    f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
    f"{html.escape(words)}</text>"
  )


def svg(content: str, data: str = "") -> str:
  """Returns an `svg` element, with the margins for page.js."""
  margins = f'data-left="{LEFT}" data-right="{RIGHT}" data-top="{TOP}" '
  margins += f'data-bottom="{BOTTOM}" {data}'
  return (
    f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" {margins}>{content}</svg>'
  )
