"""Draws curves of a run in notebooks, with matplotlib."""

from typing import Any

import numpy as np

from azr_jax.report.reading import LoggedRun


def curves(
  axes: Any, run: LoggedRun, pattern: str, title: str = "", window: int = 5
) -> None:
  """Draws metrics over the steps, each with its running mean.

  Args:
    axes: the matplotlib axes to draw in.
    run: a run from `reading.read_runs`.
    pattern: a regular expression that matches whole metric names. Its groups
      are the labels.
    title: the title of the axes.
    window: the window of the running mean in steps.

  Raises:
    ValueError: the run has no such metric.
  """
  matching = run.series(pattern)
  if not matching:
    raise ValueError(f"{run.name} has no metric that matches {pattern!r}")
  steps = np.array(run.steps)
  for label, values in matching.items():
    series = np.array([np.nan if v is None else v for v in values], float)
    known = np.isfinite(series)
    (line,) = axes.plot(steps[known], series[known], alpha=0.3, linewidth=1)
    smooth = [
      series[known][max(0, i + 1 - window) : i + 1].mean()
      for i in range(known.sum())
    ]
    axes.plot(steps[known], smooth, color=line.get_color(), label=label)
  axes.set_title(title)
  axes.set_xlabel("step")
  axes.legend(fontsize="small")
