"""Reads reference values, such as those of a paper, to be drawn beside runs.

A file has a line for each value, under the names of its columns:

  metric,step,value,label
  evaluation/aime24/pass@1/unbiased,,0.481,ORZ-32B (table 4)

The metric is one of `metrics.jsonl`. A value without a step is a level, drawn
over all steps; values of one label and metric with steps are points, joined by
a line that nobody has measured.
"""

import csv
import dataclasses
import io
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.evals import registry
from azr_jax.report import charts
from azr_jax.report.charts import Line
from azr_jax.run import storage

COLUMNS = ("metric", "step", "value", "label")
# The files of docs/run_list.md, which are found by their names alone.
FOLDER = pathlib.Path(__file__).parents[1] / "assets" / "references"
_BENCHMARK = re.compile(r"evaluation/(\w+)/pass@1/unbiased")


@dataclasses.dataclass(frozen=True)
class Reference:
  """Values of a metric under a label.

  Attributes:
    label: its name in legends.
    values: its value by step; the step of a level is None.
  """

  label: str
  values: Mapping[int | None, float]

  @property
  def last_step(self) -> int:
    """The last step of its points; 0: it is a level."""
    return max(step or 0 for step in self.values)

  @property
  def final(self) -> float:
    """The level, or the value of the last point."""
    return self.values.get(None, self.values.get(self.last_step, 0.0))

  def line(self, colour: int, last_step: int) -> Line:
    """Returns it as a dashed line of a chart.

    Args:
      colour: the number of its colour.
      last_step: the end of the chart's horizontal axis.
    """
    colour = charts.COLOURS + colour % charts.COLOURS
    if None in self.values:
      ends, level = (0, last_step), self.values[None]
      return Line(self.label, ends, (level, level), (), colour, charts.LEVEL)
    steps = sorted(step for step in self.values if step is not None)
    values = [self.values[step] for step in steps]
    return Line(self.label, steps, values, (), colour, charts.POINTS)


class References:
  """The references of a page, and which of their metrics it has shown."""

  def __init__(self, by_metric: Mapping[str, Sequence[Reference]]):
    """Begins a page.

    Args:
      by_metric: the references of each metric.
    """
    self._by_metric = by_metric
    self._shown: set[str] = set()

  def take(self, metric: str) -> Sequence[Reference]:
    """Returns the references of a metric, which count as shown from now on."""
    self._shown.add(metric)
    return self._by_metric.get(metric, ())

  def scores(self, benchmarks: Sequence[str]) -> dict[str, dict[str, float]]:
    """Returns final pass@1 by label and benchmark, and averages of benchmarks.

    Args:
      benchmarks: the columns of the table of scores, which count as shown.
    """
    found: dict[str, dict[str, float]] = {}
    for metric in self._by_metric:
      match = _BENCHMARK.fullmatch(metric)
      if match and match[1] in benchmarks:
        for one in self.take(metric):
          found.setdefault(one.label, {})[match[1]] = one.final
    return {
      label: scores | registry.averages(scores)
      for label, scores in found.items()
    }

  def missing(self) -> str:
    """Returns in a line which metrics the page does not show, or ""."""
    names = [name for name in self._by_metric if name not in self._shown]
    if not names:
      return ""
    return f"the page has no figure for the references of {', '.join(names)}"


def read(text: str) -> References:
  """Reads a file of references.

  Args:
    text: its path or address, or the name of one of `FOLDER`; "": there are no
      references.

  Raises:
    ValueError: there is no such file, or it is not as the module describes.
  """
  if not text:
    return References({})
  path = storage.resolve(text)
  if not path.exists() and pathlib.Path(text).name == text:
    path = FOLDER / text
  if not path.exists():
    known = ", ".join(sorted(file.name for file in FOLDER.glob("*.csv")))
    raise ValueError(
      f"--reference={text}: there is no such file; expected a path, or one of "
      f"{known}"
    )
  # Spreadsheets write a byte order mark.
  lines = path.read_bytes().decode("utf-8-sig", "replace")
  rows = csv.DictReader(
    io.StringIO(lines, newline=None), skipinitialspace=True, strict=True
  )
  try:
    return References(_values(rows))
  except (ValueError, csv.Error) as error:
    line = max(1, rows.reader.line_num)
    raise ValueError(f"{text}:{line}: {error}") from None


def _values(rows: "csv.DictReader[str]") -> dict[str, list[Reference]]:
  """Returns the references of each metric.

  Raises:
    ValueError: a line is not as the module describes.
    csv.Error: it is no CSV.
  """
  columns = rows.fieldnames or ()
  lacking = [one for one in COLUMNS if list(columns).count(one) != 1]
  if lacking:
    raise ValueError(
      f"there is no column {', '.join(lacking)}, or several; expected "
      f"{','.join(COLUMNS)}"
    )
  found: dict[str, dict[str, dict[int | None, float]]] = {}
  for row in rows:
    metric, step, value, label = _row(row)
    values = found.setdefault(metric, {}).setdefault(label, {})
    if step in values or (values and (step is None or None in values)):
      raise ValueError(
        f"{label!r} has a value of {metric} already; expected one level, or "
        "points of different steps"
      )
    values[step] = value
  if not found:
    raise ValueError("expected a value below its columns")
  return {
    metric: [Reference(label, values) for label, values in labels.items()]
    for metric, labels in found.items()
  }


def _row(
  row: Mapping[str | None, Any],
) -> tuple[str, int | None, float, str]:
  """Returns a line's metric, step, value and label.

  Raises:
    ValueError: a column has something else.
  """
  more = row.get(None) or ()
  if any(more):
    raise ValueError(
      f"there are values without a column: {','.join(more)!r:.80}; expected "
      "quotes around a text with commas"
    )
  metric, step, value, label = ((row[c] or "").strip() for c in COLUMNS)
  for name, text in (("metric", metric), ("label", label)):
    if not text:
      raise ValueError(f"there is no {name}")
  if step and not (step.isascii() and step.isdecimal()):
    raise ValueError(f"step {step!r}: expected a whole number, or nothing")
  try:
    number = float(value)
  except ValueError:
    number = math.nan
  if not math.isfinite(number) or "_" in value:
    raise ValueError(f"value {value!r}: expected a number")
  return metric, int(step) if step else None, number, label
