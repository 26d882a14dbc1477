"""Reads reference values, for example of a paper, to draw beside runs.

A file is CSV with one value per line:

  metric,step,value,label
  evaluation/aime24/pass@1/unbiased,,0.481,ORZ-32B (table 4)

The metric is one of `metrics.jsonl`. A value without a step is a level, drawn
over all steps. Values with steps that share a label and a metric are points,
joined by a line for readability.
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
# The files of docs/run_list.md, which are found by name alone.
FOLDER = pathlib.Path(__file__).parents[1] / "assets" / "references"
_BENCHMARK = re.compile(r"evaluation/(\w+)/pass@1/unbiased")


@dataclasses.dataclass(frozen=True)
class Reference:
  """Values of a metric under a label.

  Attributes:
    label: the name in legends.
    values: values by step. A constant has the single step None.
  """

  label: str
  values: Mapping[int | None, float]

  @property
  def last_step(self) -> int:
    """The last step of the points; 0 if the reference is a constant."""
    return max(step or 0 for step in self.values)

  @property
  def final(self) -> float:
    """The constant, or the value of the last point."""
    return self.values.get(None, self.values.get(self.last_step, 0.0))

  def line(self, colour: int, last_step: int) -> Line:
    """Returns a dashed line of a chart.

    Args:
      colour: the index of the colour.
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
  """The references of a page, and which metrics it has shown."""

  def __init__(self, by_metric: Mapping[str, Sequence[Reference]]):
    """Stores the references; none has been shown yet.

    Args:
      by_metric: the references of each metric.
    """
    self._by_metric = by_metric
    self._shown: set[str] = set()

  def take(self, metric: str) -> Sequence[Reference]:
    """Returns the references of a metric and marks the metric as shown."""
    self._shown.add(metric)
    return self._by_metric.get(metric, ())

  def scores(self, benchmarks: Sequence[str]) -> dict[str, dict[str, float]]:
    """Returns label -> benchmark -> final pass@1, including averages.

    Args:
      benchmarks: the columns of the scores table, which are marked as shown.
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
    """Returns a one-line note on metrics that the page does not show, or ""."""
    names = [name for name in self._by_metric if name not in self._shown]
    if not names:
      return ""
    return f"the page has no figure for the references of {', '.join(names)}"


def read(text: str) -> References:
  """Reads a file of references.

  Args:
    text: a path or URL, or the name of a file in `FOLDER`. "" means no
      references.

  Raises:
    ValueError: the file does not exist, or has another format than the module
      docstring describes.
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
  # Spreadsheets may write a byte order mark.
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
    ValueError: a line is invalid.
    csv.Error: the file is not CSV.
  """
  columns = rows.fieldnames or ()
  lacking = [one for one in COLUMNS if list(columns).count(one) != 1]
  if lacking:
    raise ValueError(
      f"there is no column {', '.join(lacking)}, or more than one; expected "
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
    ValueError: a field is invalid.
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
    raise ValueError(f"step {step!r}: expected a whole number or nothing")
  try:
    number = float(value)
  except ValueError:
    number = math.nan
  if not math.isfinite(number) or "_" in value:
    raise ValueError(f"value {value!r}: expected a number")
  return metric, int(step) if step else None, number, label
