"""Builds one self-contained HTML page about one run or several."""

import base64
import hashlib
import html
import json
import math
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from azr_jax.report import (
  distributions,
  headline,
  html_parts,
  run_tables,
  sections,
)
from azr_jax.report.figures import Figures, constants
from azr_jax.report.reading import LoggedRun
from azr_jax.report.references import References
from azr_jax.report.scores import Benchmarks
from azr_jax.systems import registry as systems

_ASSETS = pathlib.Path(__file__).parents[1] / "assets" / "report"
_MAX_CHARS = 10_000  # per text, so that a phone can open the page
_MIN_SMOOTHED = 20  # shorter runs are not smoothed
# Keys of a text's record that are shown outside of its details.
_SHOWN_APART = ("group", "prompt", "completion", "finish_reason", "reward")

# An analysis returns a section about the runs as HTML, or "" if it does not
# apply to them.
Analysis = Callable[[Sequence[LoggedRun]], str]


def build(
  runs: Sequence[LoggedRun],
  benchmarks: Benchmarks,
  smooth: int = 0,
  live_s: float = 0.0,
  references: References | None = None,
  analyses: Sequence[Analysis] = (),
) -> str:
  """Returns the page as HTML.

  Args:
    runs: the runs, at least one.
    benchmarks: their scores.
    smooth: the window of the running mean in steps. 1 turns it off, 0 uses a
      twentieth of the run.
    live_s: seconds between the page's polls for a newer version. 0 turns
      polling off.
    references: reference values to draw, or None. They record which of them
      were shown.
    analyses: additional sections, shown after the benchmarks.
  """
  references = references or References({})
  title = ", ".join(run.name for run in runs)
  smooth = smooth or default_smooth(runs)
  body = [
    html_parts.section(
      "Did it learn?",
      headline.build(runs, benchmarks, _main_curve(runs, smooth, references)),
    ),
    _benchmarks(runs, benchmarks, references),
    *(analysis(runs) for analysis in analyses),
    *_figures(runs, smooth, references),
    html_parts.section(
      "Runs" if len(runs) > 1 else "Run", run_tables.about(runs)
    ),
  ]
  for name, kind in (("Texts", "samples"), ("Flagged texts", "flagged")):
    texts = [
      {"run": run.name} | _text_record(record)
      for run in runs
      for record in getattr(run, kind)
    ]
    if texts:
      body.append(html_parts.section(name, _browser(kind, texts)))
  names = re.findall(r'<section id="([^"]+)"><h2>([^<]+)', "".join(body))
  links = "".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in names)
  live = '<p id="live" class="hint">live</p>' if live_s else ""
  style, script = _asset("style.css"), _asset("page.js")
  return (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    f"{_policy(style, script)}"
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f"<title>{html.escape(title)}</title>\n<style>{style}</style>"
    f'</head>\n<body data-live="{live_s:g}"><header><h1>{html.escape(title)}'
    "</h1>"
    '<button id="theme" aria-label="light or dark">&#9680;</button>'
    f"<nav>{links}</nav>{live}</header>\n<main>{''.join(body)}</main>\n"
    f"<script>{script}</script></body></html>\n"
  )


def _main_curve(
  runs: Sequence[LoggedRun], smooth: int, references: References
) -> str:
  """Returns the first chart of `sections.MAIN` that these runs have."""
  for chart in sections.MAIN:
    # Use a separate `Figures`, because the chart appears again in its section.
    drawn = Figures(runs, smooth, references).figure(chart)
    if drawn:
      return drawn
  return ""


def default_smooth(runs: Sequence[LoggedRun]) -> int:
  """Returns the window of the running mean; 1 (off) for short runs."""
  length = max(len(run.steps) for run in runs)
  return 1 if length < _MIN_SMOOTHED else min(max(length // 20, 5), 50)


def _figures(
  runs: Sequence[LoggedRun], smooth: int, references: References
) -> list[str]:
  """Returns the sections of figures for which the runs have metrics."""
  figures = Figures(runs, smooth, references)
  healthy = systems.healthy_metrics()
  body = []
  typed = "".join(
    f"<h3>{html.escape(kind)}</h3>{html_parts.grid(shown)}"
    for kind, shown in distributions.by_type(figures)
  )
  typed += constants(figures.take_constants())
  if typed:
    body.append(_figure_section(sections.BY_TYPE, typed, runs))
  elsewhere: list[str] = []  # constant metrics of sections without figures
  for name, section_charts in sections.SECTIONS.items():
    shown = "".join(
      figures.figure(chart, healthy.get(chart.family, ""))
      for chart in section_charts
    )
    if name == sections.LEARNABILITY:
      shown += distributions.histograms(figures)
    if name == sections.TIME:
      shown = distributions.phases(figures) + shown
    found = figures.take_constants()
    if shown:
      content = html_parts.grid(shown) + constants(found)
      body.append(_figure_section(name, content, runs))
    else:
      elsewhere += found
  shown = figures.others()
  constant = constants(elsewhere + figures.take_constants())
  if shown or constant:
    content = html_parts.grid(shown) + constant
    body.append(html_parts.section(sections.OTHERS, content))
  if note := references.missing():
    body.insert(0, f'<p class="hint">{html.escape(note)}.</p>')
  if body:
    mean = (
      f"thick lines are means over up to {smooth} steps; " if smooth > 1 else ""
    )
    arrow = "\N{RIGHTWARDS ARROW}"
    body[0] = (
      f'<p class="hint">In the figures: {mean}a {arrow} b are the means of the '
      "first and last steps. Tap a figure to see the values of a step.</p>"
      + body[0]
    )
  return body


def _figure_section(name: str, content: str, runs: Sequence[LoggedRun]) -> str:
  """Returns a section; a note names the paper's matching figure, if any."""
  system, note = sections.PAPER_FIGURES.get(name, ("", ""))
  is_of_paper = all(run.config.get("system") == system for run in runs)
  return html_parts.section(name, content, note if is_of_paper else "")


def _benchmarks(
  runs: Sequence[LoggedRun], benchmarks: Benchmarks, references: References
) -> str:
  """Returns the section of scores, or how to produce them."""
  name = "Benchmarks"
  if table := benchmarks.table(references):
    return html_parts.section(name, table)
  command = (
    "python -m azr_jax.evaluate --config=configs/evaluate.py "
    f"--model={runs[0].folder} --benchmark=NAME "
    f"--workdir={runs[0].scores_folder}"
  )
  return html_parts.section(
    name,
    "<p>No scores of <code>azr_jax.evaluate</code> were found. To create them, "
    f"run:</p><p><code>{html.escape(command)}</code></p>",
  )


def _asset(name: str) -> str:
  return (_ASSETS / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
  """Returns the meta tag that allows only the page's own style and script.

  The page shows model outputs, and nothing in them may run or load.

  Args:
    style: the page's style sheet.
    script: the page's script, which polls the page's server for changes.
  """
  sources = [
    base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    for text in (style, script)
  ]
  return (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    f"style-src 'sha256-{sources[0]}'; script-src 'sha256-{sources[1]}'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'\">\n"
  )


def _text_record(record: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the fields of a sampled or flagged text that the page shows."""
  group = record.get("group", "")
  if isinstance(group, list):
    group = "/".join(map(str, group))
  # Drop the number of the prompt, so that filters can select groups of several
  # prompts.
  shown = {"step": record["step"], "group": re.sub(r"/\d+$", "", str(group))}
  for key in ("prompt", "completion"):
    text = str(record.get(key, ""))
    rest = len(text) - _MAX_CHARS
    note = f"\n[{rest} more characters]" if rest > 0 else ""
    shown[key] = text[:_MAX_CHARS] + note
  reward = record.get("reward")
  is_number = isinstance(reward, int | float) and math.isfinite(reward)
  shown["reward"] = reward if is_number else None
  shown["rules"] = record.get("rules", [])
  shown["details"] = {
    key: value if isinstance(value, int | str) else f"{value:.4g}"
    for key, value in record.items()
    if isinstance(value, int | float | str)
    and key not in (*_SHOWN_APART, "step", "rules")
  } | {"ended by": record.get("finish_reason", "")}
  return shown


def _browser(kind: str, texts: Sequence[Mapping[str, Any]]) -> str:
  """Returns the texts as JSON for the page's script to filter and list."""
  # The escapes keep a text from closing the enclosing script element.
  data = json.dumps(texts, allow_nan=False)
  data = data.replace("</", "<\\/").replace("<!--", "<\\u0021--")
  return (
    f'<div class="browser" data-texts="{kind}"></div>'
    f'<script type="application/json" id="{kind}">{data}</script>'
  )
