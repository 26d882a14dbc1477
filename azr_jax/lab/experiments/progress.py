"""Reports how far an experiment is, and when it will be done."""

import statistics
from collections.abc import Mapping

from azr_jax.lab.experiments import folders
from azr_jax.lab.experiments.folders import Workdir


class ExperimentProgress:
  """Counts finished and remaining steps, and how long a step takes."""

  def __init__(self, workdir: Workdir, num_cores: int):
    self._workdir, self._num_cores = workdir, num_cores

  def line(self, spent: Mapping[str, float]) -> str:
    """Returns one status line: runs, steps, core-hours and the ETA.

    The ETA covers training steps but not scores. Runs that have not started are
    assumed to have as many steps as the others on average.

    Args:
      spent: core seconds by job.
    """
    plan = self._workdir.plan
    folders_of_runs = [self._workdir.run(arm, s) for arm, s in plan.runs()]
    counts = [folders.steps_done(run) for run in folders_of_runs]
    begun = [(done, total) for done, total in counts if total]
    done = sum(done for done, _ in begun)
    finished = sum(folders.is_done(run) for run in folders_of_runs)
    hours = sum(spent.values()) / 3600
    text = (
      f"{finished}/{len(counts)} runs, {done} steps, {hours:.2f} of "
      f"{plan.about.core_hours:g} core-hours"
    )
    seconds = sum(spent.get(run.name, 0.0) for run in folders_of_runs)
    if not done or not seconds:
      return text
    total = statistics.mean(total for _, total in begun) * len(counts)
    left = max(total - done, 0.0) * seconds / done / self._num_cores
    return f"{text}, ETA {_duration(left)} on {self._num_cores} cores"


def _duration(seconds: float) -> str:
  """Formats hours and minutes, as in `2 h 05 min`."""
  minutes = round(seconds / 60)
  return f"{minutes // 60} h {minutes % 60:02d} min"
