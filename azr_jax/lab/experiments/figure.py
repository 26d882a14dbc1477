"""Draws the curves, transition and comparisons of an experiment."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from azr_jax.lab.experiments import folders, reading
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.lab.experiments.plan import Plan

_WINDOW = 5  # steps of the running mean
_LEGEND_COLUMNS = 6
_LEGEND_ROW = 0.3  # inches
_COLOURS = 10  # Further lines reuse the colours, dashed.


def draw(workdir: Workdir, results: dict[str, Any], out: pathlib.Path) -> None:
  """Draws a panel for each metric, the transition, and the comparisons.

  Without comparisons, the last panel has the parts of each gain. Curves are
  smoothed means over seeds, in a band from the lowest to the highest seed. The
  transition shows each seed as a point, with lines through their means.

  Args:
    workdir: the working directory with the runs.
    results: the content of results.json.
    out: the image file to write.
  """
  # Imported here, because matplotlib is an optional dependency.
  import matplotlib

  matplotlib.use("Agg")
  from matplotlib import pyplot

  panels, transition = workdir.plan.panels, workdir.plan.transition
  count = len(panels) + 1 + (transition is not None)
  columns = min(count, 3)
  rows = -(-count // columns)
  # A comparison's label has two lines, which must not overlap the next one.
  compared = len(results["comparisons"])
  lines = 2 * compared if compared else len(results["styles"])
  height = max(3.2, 1.2 + 0.13 * lines)
  figure, axes = pyplot.subplots(
    rows, columns, figsize=(4.4 * columns, height * rows), squeeze=False
  )
  for panel in axes.flat[count:]:
    panel.set_axis_off()
  for panel, (title, metric) in zip(axes.flat, panels.items(), strict=False):
    _curves(panel, workdir, metric)
    panel.set_title(title, wrap=True)
    panel.set_xlabel("step")
    if not panel.lines:
      panel.text(0.5, 0.5, f"no run has\n{metric}", ha="center", wrap=True)
  if transition is not None:
    _transition(axes.flat[count - 2], workdir.plan, results)
  (_forest if compared else _parts)(axes.flat[count - 1], results)
  # An arm may lack a panel's metric, so collect the legend over all panels.
  arms = {
    label: handle
    for panel in axes.flat[: len(panels)]
    for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
  }
  legend_rows = -(-len(arms) // _LEGEND_COLUMNS)
  if arms:
    figure.legend(
      arms.values(),
      arms,
      loc="lower center",
      ncol=min(_LEGEND_COLUMNS, len(arms)),
      fontsize="small",
    )
  legend = _LEGEND_ROW * legend_rows / figure.get_figheight()
  figure.tight_layout(rect=(0, legend, 1, 1))
  figure.savefig(out, dpi=100, metadata={"Software": None})
  pyplot.close(figure)


def _curves(panel: Any, workdir: Workdir, metric: str) -> None:
  for number, arm in enumerate(workdir.plan.arms):
    by_seed = [
      {int(row["step"]): row[metric] for row in rows if metric in row}
      for seed in workdir.plan.about.seeds
      for rows in [folders.read_rows(workdir.run(arm, seed))]
    ]
    by_seed = [values for values in by_seed if values]
    if not by_seed:
      continue
    steps = sorted(set.intersection(*({*values} for values in by_seed)))
    if not steps:
      continue
    curves = np.array([_smooth(values, steps) for values in by_seed])
    (line,) = panel.plot(
      steps,
      curves.mean(axis=0),
      label=arm,
      color=f"C{number % _COLOURS}",
      linestyle="-" if number < _COLOURS else "--",
    )
    panel.fill_between(
      steps,
      curves.min(axis=0),
      curves.max(axis=0),
      color=line.get_color(),
      alpha=0.15,
      linewidth=0,
    )


def _transition(panel: Any, plan: Plan, results: dict[str, Any]) -> None:
  """Draws an outcome against the number of each line's arms."""
  assert plan.transition is not None
  outcome = plan.transition.outcome
  scale = reading.scale(plan.outcomes[outcome])
  found = {
    one["arm"]: [scale * value for value in one["by_seed"]]
    for one in results["outcomes"]
    if one["outcome"] == outcome
  }
  for name, line in plan.transition.lines.items():
    points = sorted((x, found[arm]) for arm, x in line.items() if arm in found)
    if not points:
      continue
    means = [float(np.mean(values)) for _, values in points]
    (drawn,) = panel.plot([x for x, _ in points], means, label=name)
    for x, values in points:
      color = drawn.get_color()
      panel.plot([x] * len(values), values, "o", color=color, markersize=3)
  for value in found.get("start", ()):
    panel.axhline(value, color="grey", linestyle=":", label="start")
  panel.set_title(plan.outcomes[outcome].title)
  panel.set_xlabel(plan.transition.axis)
  if panel.get_legend_handles_labels()[1]:
    panel.legend(fontsize="x-small")


def _smooth(values: Mapping[int, float], steps: Sequence[int]) -> list[float]:
  """Returns the mean over the last `_WINDOW` steps, at each of the steps.

  A metric of every tenth step, such as a score, is left unchanged.
  """
  known = {*steps}
  means = []
  for step in steps:
    near = known.intersection(range(step + 1 - _WINDOW, step + 1))
    means.append(float(np.mean([values[one] for one in sorted(near)])))
  return means


def _forest(panel: Any, results: dict[str, Any]) -> None:
  """Draws the interval of each comparison, in units of its standard error."""
  found = [one for one in results["comparisons"] if one["interval"]]
  panel.axvline(0, color="grey", linewidth=0.8)
  panel.set_title("difference / its standard error")
  panel.set_yticks(range(len(found)))
  panel.set_yticklabels(
    [
      f"{one['outcome']}: {one['arm']}\n- {one['base'] or '0'}" for one in found
    ],
    fontsize="x-small",
  )
  panel.invert_yaxis()
  for row, one in enumerate(found):
    scale = one["stderr"] or 1.0
    low, high = (end / scale for end in one["interval"])
    panel.plot([low, high], [row, row], color="C0")
    panel.plot(one["difference"] / scale, row, "o", color="C0", markersize=4)


def _parts(panel: Any, results: dict[str, Any]) -> None:
  """Draws the part of each gain from changed shares, and that within styles."""
  found = results["styles"]
  panel.axvline(0, color="grey", linewidth=0.8)
  panel.set_title("parts of the gain over the start, points")
  panel.set_yticks(range(len(found)))
  panel.set_yticklabels(
    [f"{one['score']}: {one['arm']}" for one in found], fontsize="xx-small"
  )
  panel.invert_yaxis()
  names = {"from_shares": "changed shares", "from_within": "within styles"}
  for number, (part, name) in enumerate(names.items()):
    means, errors = (
      [100 * one["parts"][part][i] for one in found] for i in range(2)
    )
    rows = [row + 0.4 * number - 0.2 for row in range(len(found))]
    panel.barh(rows, means, 0.4, xerr=errors, color=f"C{number}", label=name)
  if found:
    panel.legend(fontsize="x-small")
