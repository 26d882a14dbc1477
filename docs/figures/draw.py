"""Draws the figures of the documentation: python docs/figures/draw.py"""

import csv
import heapq
import math
import pathlib
from collections.abc import Sequence

FOLDER = pathlib.Path(__file__).parent
WIDTH = 480
# Accuracy of the untrained model whose first word is forced (44777bb).
TOLD_TO_WORK = 0.673
# The background is painted, so a figure is readable on any page.
STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de }
  .lane { fill: #f3f5f8 }
  .box { fill: #ffffff; stroke: #57606a; stroke-width: 1.2 }
  .title { font: 600 14px system-ui, sans-serif; fill: #1f2328 }
  .text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .small { font: 12px system-ui, sans-serif; fill: #57606a }
  .arrow { fill: none; stroke: #57606a; stroke-width: 1.5 }
  .head { fill: #57606a }
  .grid { stroke: #d0d7de }
  .curve { fill: none; stroke: #2f81d6; stroke-width: 2.5 }
  .style { stroke: #3a9a5b; stroke-width: 2.5 }
  .start { stroke: #8a63c9; stroke-width: 2.5 }
  .control, .style, .start { fill: none }
  .control { stroke: #e0862d; stroke-width: 2; stroke-dasharray: 6 4 }
  .a { fill: #2f81d6 }
  .b { fill: #e0862d }
  .c { fill: #9fc6ef }
  .d { fill: #3a9a5b }
  .e { fill: #8a63c9 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #161b22; stroke: #30363d }
    .lane { fill: #212830 }
    .box { fill: #161b22; stroke: #9198a1 }
    .title, .text { fill: #e6edf3 }
    .small { fill: #b1bac4 }
    .arrow { stroke: #9198a1 }
    .head { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .c { fill: #2b4f78 }
  }
"""


class Drawing:
  """The elements of an SVG file."""

  def __init__(self, height: int, label: str):
    self._height = height
    self._parts = [f"<title>{label}</title>"]

  def rect(self, x, y, width, height, kind, radius=4.0):
    self._parts.append(
      f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
      f'rx="{radius:g}" class="{kind}"/>'
    )

  def text(self, x, y, text, kind="text", anchor="middle"):
    self._parts.append(
      f'<text x="{x:g}" y="{y:g}" class="{kind}" '
      f'text-anchor="{anchor}">{text}</text>'
    )

  def box(self, x, y, width, height, *lines):
    """Draws a box with a title and smaller lines below it."""
    self.rect(x, y, width, height, "box", 6)
    top = y + height / 2 + 5 - 8 * (len(lines) - 1)
    for number, line in enumerate(lines):
      kind = "small" if number else "title"
      self.text(x + width / 2, top + 16 * number, line, kind)

  def arrow(self, points: Sequence[tuple[float, float]]):
    """Draws a line through points, with a head at the last one."""
    path = " L".join(f"{x:g} {y:g}" for x, y in points)
    self._parts.append(
      f'<path d="M{path}" class="arrow" marker-end="url(#head)"/>'
    )

  def line(self, points: Sequence[tuple[float, float]], kind: str):
    """Draws a line through points."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    self._parts.append(f'<polyline points="{path}" class="{kind}"/>')

  def save(self, name: str):
    """Writes the file."""
    body = "\n  ".join(self._parts)
    (FOLDER / name).write_text(
      f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * 5 // 4}" '
      f'viewBox="0 0 {WIDTH} {self._height}" role="img">\n'
      f"  <style>{STYLE}  </style>\n"
      '  <marker id="head" viewBox="0 0 8 8" refX="7" refY="4" '
      'markerWidth="7" markerHeight="7" orient="auto">'
      '<path d="M0 0 L8 4 L0 8 z" class="head"/></marker>\n'
      f'  <rect x="0.5" y="0.5" width="{WIDTH - 1}" '
      f'height="{self._height - 1}" rx="8" class="page"/>\n'
      f"  {body}\n</svg>\n",
      "utf-8",
    )


def draw_parts():
  """Draws devices, host loop and executor, with what flows between them."""
  d = Drawing(
    470, "Devices sample and learn, the host schedules, processes grade"
  )
  lanes = (
    (12, "Devices: jitted programs, sharded over a mesh", 28, "start"),
    (170, "Host: one event loop", 258, "middle"),
    (328, "Executor: sandboxed processes, no JAX", 452, "end"),
  )
  for y, name, x, anchor in lanes:
    d.rect(12, y, WIDTH - 24, 100, "lane", 6)
    d.text(x, y + 20, name, "title", anchor)
  d.box(28, 40, 170, 60, "sampler", "paged cache, slots")
  d.box(282, 40, 170, 60, "learner", "loss, optimizer")
  d.box(28, 198, 170, 60, "system.collect", "coroutines")
  d.box(282, 198, 170, 60, "advantages, pack", "one batch")
  d.box(28, 356, 100, 60, "server", "schedules")
  d.box(190, 356, 100, 60, "zygote", "forks")
  d.box(352, 356, 100, 60, "program", "own process")
  d.arrow([(282, 70), (200, 70)])
  d.text(240, 62, "weights", "small")
  d.arrow([(198, 228), (280, 228)])
  d.text(240, 220, "trajectories", "small")
  d.arrow([(70, 198), (70, 102)])
  d.text(62, 142, "prompts", "small", "end")
  d.arrow([(150, 100), (150, 196)])
  d.text(158, 136, "tokens,", "small", "start")
  d.text(158, 152, "log-probabilities", "small", "start")
  d.arrow([(367, 198), (367, 102)])
  d.text(375, 142, "batch", "small", "start")
  d.arrow([(70, 258), (70, 354)])
  d.text(62, 302, "answers", "small", "end")
  d.arrow([(110, 356), (110, 260)])
  d.text(118, 302, "verdicts, tool output", "small", "start")
  d.arrow([(128, 386), (188, 386)])
  d.arrow([(290, 386), (350, 386)])
  d.text(24, 452, "All three work at the same time.", "text", "start")
  d.save("parts.svg")


# The step of the timeline: lengths of six proposals, and of the two solutions
# that follow each proposal.
PROPOSALS = (6.0, 2.0, 3.0, 4.0, 2.0, 3.0)
SOLUTIONS = ((2.0, 3.0), (7.0, 2.0), (3.0, 2.0), (2.0, 4.0), (3.0, 9.0), (2, 3))
NEXT = (3.0, 5.0, 2.0, 4.0, 3.0, 2.0, 4.0, 3.0)
SLOTS, GRADING, UPDATE = 4, 1.5, 2.0
Bar = tuple[int, float, float, str]  # slot, start, end, kind


def in_phases() -> tuple[list[Bar], list[tuple[float, float]], float]:
  """Returns the slots' bars, the grading intervals, and the end of grading."""
  bars: list[Bar] = []
  grading: list[tuple[float, float]] = []
  now = 0.0
  flat = [length for pair in SOLUTIONS for length in pair]
  for lengths, kind in ((PROPOSALS, "a"), (flat, "b")):
    free = [(now, slot) for slot in range(SLOTS)]
    for length in lengths:
      start, slot = heapq.heappop(free)
      bars.append((slot, start, start + length, kind))
      heapq.heappush(free, (start + length, slot))
    sampled = max(end for end, _ in free)
    now = sampled + GRADING
    grading.append((sampled, now))
  return bars, grading, now


def as_stream(
  ahead: Sequence[float] = (),
) -> tuple[list[Bar], list[tuple[float, float]], float]:
  """Returns the same for a step in which each verdict adds prompts at once.

  Args:
    ahead: lengths of sequences of the next step, which take the slots that
      this one leaves free.
  """
  free = [(0.0, slot) for slot in range(SLOTS)]
  ready = [(0.0, 0, n, length) for n, length in enumerate(PROPOSALS)]
  ahead, bars, grading = list(ahead), [], []
  while ready:
    now, slot = heapq.heappop(free)
    arrival, is_solution, number, length = min(
      ready, key=lambda one: (max(one[0], now), -one[1], one[2])
    )
    if arrival > now and ahead:
      length = ahead.pop(0)
      bars.append((slot, now, now + length, "c"))
      heapq.heappush(free, (now + length, slot))
      continue
    ready.remove((arrival, is_solution, number, length))
    start = max(now, arrival)
    end = start + length
    bars.append((slot, start, end, "b" if is_solution else "a"))
    grading.append((end, end + GRADING))
    if not is_solution:
      ready += [(end + GRADING, 1, number, n) for n in SOLUTIONS[number]]
    heapq.heappush(free, (end, slot))
  done = max(end for _, end in grading)
  while ahead and min(free)[0] < done:
    now, slot = heapq.heappop(free)
    length = ahead.pop(0)
    bars.append((slot, now, now + length, "c"))
    heapq.heappush(free, (now + length, slot))
  return bars, grading, done


def split(bars: list[Bar], done: float) -> list[Bar]:
  """Splits each bar that the update interrupts into two."""
  parts = []
  for slot, start, end, kind in bars:
    if end <= done:
      parts.append((slot, start, end, kind))
      continue
    parts.append((slot, start, done, kind))
    parts.append((slot, done + UPDATE, end + UPDATE, kind))
  return parts


def draw_timeline():
  """Draws a step in phases, as one stream, and overlapping the next step."""
  d = Drawing(532, "One step of self-play with and without overlap")
  left, scale, row = 66, 13.6, 14
  panels = (
    ("In phases: everybody waits for the longest", in_phases()),
    ("One stream (default): verdicts feed new prompts", as_stream()),
    ("One step ahead (rollout.max_staleness=1)", as_stream(NEXT)),
  )
  for number, (name, (bars, grading, done)) in enumerate(panels):
    top = 14 + 152 * number
    d.text(16, top + 18, name, "title", "start")
    d.rect(left, top + 28, WIDTH - left - 14, 4 * row + 4, "lane", 3)
    d.rect(left, top + 92, WIDTH - left - 14, row + 2, "lane", 3)
    d.text(16, top + 62, "slots", "small", "start")
    d.text(16, top + 105, "grading", "small", "start")
    for slot, start, end, kind in split(bars, done):
      y = top + 31 + row * slot
      if left + scale * start < WIDTH - 14:
        end = min(end, (WIDTH - 16 - left) / scale)
        width = scale * (end - start) - 1.5
        d.rect(left + scale * start, y, width, row - 3, kind, 2)
    for start, end in grading:
      x, width = left + scale * start, scale * (end - start)
      d.rect(x, top + 95, width, row - 4, "d", 2)
    d.rect(left + scale * done, top + 28, scale * UPDATE, 4 * row + 4, "e", 2)
    end = left + scale * (done + UPDATE)
    d.text(min(end, WIDTH - 14), top + 125, "step ends", "small", "end")
    d.arrow([(end, top + 116), (end, top + 88)])
  legend = (
    ("a", "proposals"),
    ("b", "solutions"),
    ("c", "next step"),
    ("d", "grading"),
    ("e", "update"),
  )
  for number, (kind, name) in enumerate(legend):
    x = 18 + 94 * number
    d.rect(x, 488, 12, 12, kind, 2)
    d.text(x + 17, 499, name, "small", "start")
  d.text(
    16,
    520,
    "Schematic: four slots, six proposals, two solutions each.",
    "small",
    "start",
  )
  d.save("timeline.svg")


def draw_sequence():
  """Draws the stages of a sequence and what moves it between them."""
  d = Drawing(440, "The life of a sequence in the sampler")
  d.box(150, 16, 180, 52, "queue", "tokens only")
  d.box(150, 120, 180, 52, "prefill", "pages are filled in chunks")
  d.box(150, 224, 180, 52, "slot", "one token per iteration")
  d.box(150, 372, 180, 52, "done", "a Completion")
  d.box(360, 172, 108, 52, "tool", "pages stay")
  d.box(12, 120, 108, 52, "paused", "tokens only")
  d.arrow([(240, 68), (240, 118)])
  d.text(248, 98, "pages are free", "small", "start")
  d.arrow([(240, 172), (240, 222)])
  d.text(248, 202, "slot is free", "small", "start")
  d.arrow([(240, 276), (240, 370)])
  d.text(248, 318, "end token, stop string", "small", "start")
  d.text(248, 334, "or maximum length", "small", "start")
  d.arrow([(330, 250), (414, 250), (414, 226)])
  d.text(372, 266, "tool call", "small", "start")
  d.arrow([(414, 172), (414, 146), (332, 146)])
  d.text(340, 138, "its output", "small", "start")
  d.arrow([(150, 250), (66, 250), (66, 174)])
  d.text(12, 268, "update,", "small", "start")
  d.text(12, 284, "token budget spent", "small", "start")
  d.text(12, 300, "or pages run out", "small", "start")
  d.arrow([(66, 120), (66, 42), (148, 42)])
  d.text(16, 34, "resumes with", "small", "start")
  d.text(74, 62, "its tokens", "small", "start")
  d.save("sequence.svg")


def draw_curve():
  """Draws the held-out scores of the README's run and its control.

  The scores are in curve.csv: accuracy by seed and step, of all 900 tasks.
  """
  with (FOLDER / "curve.csv").open(encoding="utf-8") as file:
    rows = [*csv.DictReader(file)]
  left, right, top, bottom = 56, 458, 84, 440
  last, low, high = max(int(row["step"]) for row in rows), 0.4, 0.72

  def x_of(step):
    return left + 10 + (right - left - 20) * step / last

  def y_of(score):
    return bottom - (bottom - top) * (score - low) / (high - low)

  d = Drawing(532, "Held-out accuracy over 40 steps of self-play")
  d.text(16, 32, "Held-out tasks solved, greedy", "title", "start")
  d.text(16, 52, "self-play, 1.7M parameters, two CPU cores", "small", "start")
  d.rect(left, top, right - left, bottom - top, "lane", 3)
  for percent in range(40, 71, 10):
    y = y_of(percent / 100)
    d.line([(left, y), (right, y)], "grid")
    d.text(left - 8, y + 4, f"{percent} %", "small", "end")
  for step in range(0, last + 1, 8):
    d.text(x_of(step), bottom + 20, str(step), "small")
  d.text((left + right) / 2, bottom + 40, "training steps", "small")
  d.line([(left, y_of(TOLD_TO_WORK)), (right, y_of(TOLD_TO_WORK))], "control")
  d.text(
    right - 8,
    y_of(TOLD_TO_WORK) - 8,
    "control: untrained, told to work first",
    "small",
    "end",
  )
  for seed in sorted({row["seed"] for row in rows}):
    d.line(
      [
        (x_of(int(row["step"])), y_of(float(row["score"])))
        for row in rows
        if row["seed"] == seed
      ],
      "curve",
    )
  d.text(16, 512, "three seeds, 900 tasks", "small", "start")
  d.save("curve.svg")


def draw_elicitation():
  """Draws what the reward teaches, by how often the start adds.

  The scores are in elicitation.csv: percent right at temperature 1.
  """
  with (FOLDER / "elicitation.csv").open(encoding="utf-8") as file:
    rows = [*csv.DictReader(file)]
  left, right, top, bottom = 56, 330, 84, 330
  shares = [float(row["share"]) for row in rows]

  def x_of(share):
    low, high = math.log(min(shares)), math.log(max(shares))
    place = (math.log(share) - low) / (high - low)
    return left + 24 + (right - left - 48) * place

  def y_of(percent):
    return bottom - (bottom - top) * percent / 90

  d = Drawing(400, "Sums solved by how often the start adds")
  d.text(16, 32, "Sums right at temperature 1", "title", "start")
  d.text(
    16, 52, "1.7M parameters, before and after 100 steps", "small", "start"
  )
  d.rect(left, top, right - left, bottom - top, "lane", 3)
  for percent in range(0, 81, 20):
    d.line([(left, y_of(percent)), (right, y_of(percent))], "grid")
    d.text(left - 8, y_of(percent) + 4, f"{percent} %", "small", "end")
  for share in sorted(set(shares)):
    d.text(x_of(share), bottom + 20, f"{share:g} %", "small")
  d.text(
    (left + right) / 2,
    bottom + 42,
    "of the start's training data that add term by term",
    "small",
  )
  series = (
    ("told", "start, told to add", "control", -10),
    ("right", "reward: right answer", "curve", 10),
    ("form", "reward: the style", "style", 4),
    ("start", "start", "start", 4),
  )
  for key, name, kind, shift in series:
    points = [
      (x_of(share), y_of(float(row[key])))
      for share, row in zip(shares, rows, strict=True)
    ]
    d.line(points, kind)
    d.text(right + 6, points[-1][1] + shift, name, "small", "start")
  d.save("elicitation.svg")


if __name__ == "__main__":
  draw_curve()
  draw_elicitation()
  draw_parts()
  draw_timeline()
  draw_sequence()
