"""Builds one self-contained HTML page of one run or several side by side."""

import html
import json
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.evals import registry
from azr_jax.report import figures, sections
from azr_jax.report.reading import Run
from azr_jax.systems import registry as systems

_ASSETS = pathlib.Path(__file__).parents[1] / "assets" / "report"
_MAX_CHARS = 10_000  # of a text, so that a phone can open the page
_MAX_OPEN_ROWS = 12  # a longer table of differences is folded
# Keys of a text's record that are not among its details.
_SHOWN_APART = ("group", "prompt", "completion", "finish_reason", "reward")
# Benchmark -> pass@1 and its standard error.
Scores = Mapping[str, tuple[float, float]]


def build(runs: Sequence[Run], base: Scores | None = None) -> str:
  """Returns the page as HTML.

  Args:
    runs: the runs, at least one.
    base: scores that the runs' scores are compared with.
  """
  title = ", ".join(run.name for run in runs)
  drawn: set[str] = set()
  healthy = systems.healthy_metrics()
  body = [_overview(runs)]
  if base or any(run.scores for run in runs):
    body.append(_section("Benchmarks", _benchmarks(runs, base or {})))
  for name, section_charts in sections.SECTIONS.items():
    shown = "".join(
      figures.chart_figures(runs, chart, drawn, healthy)
      for chart in section_charts
    )
    if name == sections.LEARNABILITY:
      shown += figures.histograms(runs, drawn)
    if name == sections.TIME:
      shown = figures.phases(runs, drawn) + shown
    if shown:
      body.append(_section(name, _grid(shown, len(runs))))
  others = figures.others(runs, drawn)
  if others:
    body.append(_section(sections.OTHERS, _grid(others, len(runs))))
  for name, kind in (("Texts", "samples"), ("Flagged texts", "flagged")):
    texts = [
      {"run": run.name} | _text_record(record)
      for run in runs
      for record in getattr(run, kind)
    ]
    if texts:
      body.append(_section(name, _browser(kind, texts)))
  names = re.findall(r'<section id="([^"]+)"><h2>([^<]+)', "".join(body))
  links = "".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in names)
  return (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f"<title>{html.escape(title)}</title>\n<style>{_asset('style.css')}</style>"
    f'</head>\n<body style="--runs: {len(runs)}"><header><h1>'
    f"{html.escape(title)}</h1>"
    '<button id="theme" aria-label="light or dark">&#9680;</button>'
    f"<nav>{links}</nav></header>\n<main>{''.join(body)}</main>\n"
    f"<script>{_asset('page.js')}</script></body></html>\n"
  )


def _asset(name: str) -> str:
  return (_ASSETS / name).read_text(encoding="utf-8")


def _section(name: str, content: str) -> str:
  anchor = re.sub(r"\W+", "-", name.lower())
  return f'<section id="{anchor}"><h2>{name}</h2>{content}</section>\n'


def _grid(shown: str, columns: int) -> str:
  return f'<div class="{"runs" if columns > 1 else "one"}">{shown}</div>'


def _overview(runs: Sequence[Run]) -> str:
  """Returns the tables of the runs and of the differences of their configs."""
  rows = []
  for run in runs:
    seconds = [v for v in run.values.get("time/step", []) if v is not None]
    steps = f"{run.steps[-1]} of {run.config.get('train.steps', '?')}"
    cells = [
      run.name,
      run.config.get("system", "?"),
      run.config.get("model.source", "?"),
      steps,
      f"{sum(seconds) / 60:.1f}",
      f"{sum(seconds) / len(seconds):.2f}" if seconds else "",
    ]
    rows.append(_row(cells))
  head = _row(
    ["run", "system", "model", "steps", "minutes", "s / step"], cell="th"
  )
  content = _table(head, rows) + _differences(runs)
  return _section("Runs" if len(runs) > 1 else "Run", content)


def _differences(runs: Sequence[Run]) -> str:
  """Returns a table of the config keys in which the runs differ, or ""."""
  # Runs of several systems are compared only by the keys that all of them have.
  systems = {run.config.get("system") for run in runs}
  keys = sorted(
    {key for run in runs for key in run.config}
    if len(systems) == 1
    else set.intersection(*({*run.config} for run in runs))
  )
  differing = [
    key for key in keys if len({repr(run.config.get(key)) for run in runs}) > 1
  ]
  if not differing:
    return ""
  table = _table(
    _row(["differs in", *(run.name for run in runs)], cell="th"),
    [
      _row([key, *(run.config.get(key, "-") for run in runs)])
      for key in differing
    ],
  )
  return (
    f"<details{' open' if len(differing) <= _MAX_OPEN_ROWS else ''}><summary>"
    f"{len(differing)} differences of configuration</summary>{table}</details>"
  )


def _row(cells: Sequence[Any], cell: str = "td") -> str:
  content = "".join(f"<{cell}>{html.escape(str(c))}</{cell}>" for c in cells)
  return f"<tr>{content}</tr>"


def _table(head: str, rows: Sequence[str]) -> str:
  content = f"<thead>{head}</thead><tbody>{''.join(rows)}</tbody>"
  return f'<div class="wide"><table>{content}</table></div>'


def _benchmarks(runs: Sequence[Run], base: Scores) -> str:
  """Returns a table of scores in percent with differences to the base.

  The order of the columns is that of AZR's table 1 (arXiv 2505.03335).
  """
  scored = dict.fromkeys(
    name for scores in (base, *(run.scores for run in runs)) for name in scores
  )
  order = [*registry.CODE, "average/code", *registry.MATH, "average/math"]
  order.append("average/overall")
  names = [name for name in order if name in scored]
  names += [name for name in scored if name not in order]
  rows = []
  models = [("base", base)] if base else []
  for label, scores in [*models, *((run.name, run.scores) for run in runs)]:
    cells = [f"<td>{html.escape(label)}</td>"]
    for name in names:
      if name not in scores:
        cells.append("<td></td>")
        continue
      value, error = scores[name]
      text = f"{100 * value:.1f}"
      if error:
        text += f" <small>&plusmn; {100 * error:.1f}</small>"
      if scores is not base and name in base:
        change = 100 * (value - base[name][0])
        kind = "up" if change > 0 else "down" if change < 0 else ""
        text += f' <b class="{kind}">{change:+.1f}</b>'
      cells.append(f"<td>{text}</td>")
    rows.append(f"<tr>{''.join(cells)}</tr>")
  return _table(_row(["pass@1, %", *names], cell="th"), rows)


def _text_record(record: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what the page's script shows of a sampled or flagged text."""
  group = record.get("group", "")
  if isinstance(group, list):
    group = "/".join(map(str, group))
  # The number of the prompt is dropped, so that the page can filter by groups
  # of more than one prompt.
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
  """Returns the texts as JSON, which the page's script filters and lists."""
  # The escapes keep a text from closing the script element around it.
  data = json.dumps(texts, allow_nan=False)
  data = data.replace("</", "<\\/").replace("<!--", "<\\u0021--")
  return (
    f'<div class="browser" data-texts="{kind}"></div>'
    f'<script type="application/json" id="{kind}">{data}</script>'
  )
