"""Scores by `azr_jax.evaluate` of the runs and of the model before training."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from azr_jax.evals import comparison, registry, score_files
from azr_jax.report import html_parts, units
from azr_jax.report.changes import Change, Estimate
from azr_jax.report.html_parts import Cell, Html
from azr_jax.report.reading import LoggedRun
from azr_jax.report.references import References

# Benchmark -> pass@1 and its standard error.
Scores = Mapping[str, tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class Benchmarks:
  """The scores of runs.

  Attributes:
    runs: the runs, each with its scores.
    base: scores of the model before training, or {}.
    base_folder: the folder of these scores, or None.
  """

  runs: Sequence[LoggedRun]
  base: Scores
  base_folder: pathlib.Path | None = None

  def changes(self) -> dict[str, dict[str, Change]]:
    """Returns benchmark -> run name -> change from before to after.

    Benchmarks with records in both folders are compared problem by problem.
    """
    found: dict[str, dict[str, Change]] = {}
    for run in self.runs:
      paired = self._paired(run)
      for name in _in_order([*self.base]):
        if name in run.scores:
          found.setdefault(name, {})[run.name] = Change(
            _estimate(self.base[name]),
            _estimate(run.scores[name]),
            paired.get(name),
          )
    return found

  def _paired(self, run: LoggedRun) -> dict[str, Estimate]:
    """Returns paired differences, for benchmarks with records of both models.

    Folders in an object store and records of different problems give none.
    """
    if self.base_folder is None:
      return {}
    options = comparison.Options(resamples=100)
    try:
      found = list(
        comparison.compare(
          score_files.read_model(str(self.base_folder)),
          score_files.read_model(str(run.scores_folder)),
          options,
        )
      )
    except (ValueError, OSError, KeyError):
      return {}
    return {
      one.benchmark: Estimate(one.difference.mean, one.difference.item_stderr)
      for one in found
    }

  def table(self, references: References) -> str:
    """Returns a table of all scores, or "" if there are none.

    The columns are in the order of AZR's table 1 (arXiv 2505.03335).

    Args:
      references: reference scores; each label becomes a row.
    """
    names = _in_order(
      [
        n
        for scores in (self.base, *(r.scores for r in self.runs))
        for n in scores
      ]
    )
    if not names:
      return ""
    changes = self.changes()
    rows: list[list[Cell]] = []
    if self.base:
      rows.append(["before training", *(_cell(self.base, n) for n in names)])
    for run in self.runs:
      cells: list[Cell] = [run.name]
      for name in names:
        cell = _cell(run.scores, name)
        if change := changes.get(name, {}).get(run.name):
          difference = html_parts.difference_of(
            change.difference,
            units.FRACTION,
            against="paired" if change.paired else "",
          )
          cell = Html(f"{html_parts.as_html(cell)} {difference.text}")
        cells.append(cell)
      rows.append(cells)
    for label, values in references.scores(names).items():
      found = {name: (value, 0.0) for name, value in values.items()}
      rows.append([f"reference: {label}", *(_cell(found, n) for n in names)])
    return html_parts.table(["pass@1", *names], rows)


def _estimate(score: tuple[float, float]) -> Estimate:
  """Returns a score; averages over benchmarks have no error."""
  return Estimate(score[0], score[1] or None)


def _cell(scores: Scores, name: str) -> Cell:
  if name not in scores:
    return "\N{EN DASH}"
  return html_parts.estimate(_estimate(scores[name]), units.FRACTION)


def _in_order(names: Sequence[str]) -> list[str]:
  """Returns the distinct names: AZR's order first, then the others."""
  order = [*registry.CODE, "average/code", *registry.MATH, "average/math"]
  order.append("average/overall")
  return [n for n in order if n in names] + [
    n for n in dict.fromkeys(names) if n not in order
  ]
