"""Runs and analyses a plan for `python -m azr_jax.experiment`."""

import functools
import pathlib
from collections.abc import Sequence

from azr_jax.lab.experiments import archive, page, runner
from azr_jax.lab.experiments.folders import Workdir
from azr_jax.lab.experiments.jobs import ExperimentJob
from azr_jax.run import folder as run_folder
from azr_jax.run.console import print_status


def run(
  workdir: Workdir,
  todo: Sequence[ExperimentJob],
  folder: pathlib.Path,
  out: pathlib.Path,
  cores: Sequence[int],
  budget_hours: float,
) -> int:
  """Runs the unfinished jobs and writes the results.

  Args:
    workdir: the experiment's working directory, locked meanwhile.
    todo: the jobs of the plan.
    folder: the plan's folder.
    out: the folder of the results.
    cores: the cores to run on, one job per core. Without any, existing runs
      are only analysed.
    budget_hours: core-hours that this call may take.

  Returns:
    The command's exit code: 1 if jobs are left to run.
  """
  is_done = True
  with run_folder.lock_file(workdir.path):
    (workdir.register if cores else workdir.check_plan)(folder)
    if restored := archive.restore(workdir, out, goes_on=bool(cores)):
      print_status(f"{restored} runs were done elsewhere")
    keep = functools.partial(archive.save, workdir, out)
    if cores:
      is_done = runner.Runner(
        workdir, todo, cores, print_status, budget_hours, keep
      ).run()
    keep()
    print(page.write(folder, out, workdir))
  return 0 if is_done else 1
