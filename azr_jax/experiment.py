"""Runs an experiment of `experiments/`, and analyses it as its plan says.

  python -m azr_jax.experiment experiments/NAME --workdir=DIR --cores=2
  python -m azr_jax.experiment experiments/NAME --workdir=DIR --analyse

The first command trains every arm with every seed, one run on each core, scores
what is done, and stops when all is done or the plan's core-hours are spent.
Killed at any moment, the same command goes on. The second writes results.json,
table.md and figure.png into `experiments/NAME`, of what is done by then.
"""

import os
import pathlib
import sys

from azr_jax.cli import errors
from azr_jax.experiments import (
  analysis,
  checks,
  figure,
  jobs,
  page,
  plan_file,
  runner,
)
from azr_jax.experiments.folders import Workdir
from azr_jax.run.console import print_status


def main() -> None:
  """Runs what is missing, or analyses what is there."""
  parser = errors.Parser(__doc__, "azr_jax.experiment")
  parser.add_argument("experiment", help="folder with experiment.toml")
  parser.add_argument("--workdir", required=True, help="folder of all runs")
  parser.add_argument(
    "--cores", type=int, default=1, help="runs at a time, one on each core"
  )
  parser.add_argument(
    "--analyse", action="store_true", help="write table and figure; run nothing"
  )
  parser.add_argument(
    "--dry_run", action="store_true", help="print the commands; run nothing"
  )
  words = parser.parse_args()
  available = sorted(os.sched_getaffinity(0))
  if not 1 <= words.cores <= len(available):
    parser.error(f"--cores={words.cores}: expected 1 to {len(available)}")
  folder = pathlib.Path(words.experiment).expanduser()
  plan = plan_file.read(folder)
  workdir = Workdir(pathlib.Path(words.workdir).expanduser(), plan)
  if words.analyse:
    _analyse(folder, workdir)
    return
  checks.check_arms(plan)
  todo = jobs.make(workdir)
  if words.dry_run:
    print("\n".join(job.line() for job in todo))
    return
  workdir.register(folder)
  cores = available[: words.cores]
  if not runner.Runner(workdir, todo, cores, print_status).run():
    sys.exit(1)


def _analyse(folder: pathlib.Path, workdir: Workdir) -> None:
  analysis.check_runs(workdir)
  found = analysis.findings(workdir)
  results = page.write(folder, workdir, analysis.cells(workdir), found)
  figure.draw(workdir, results, folder / page.FIGURE)
  print((folder / page.TABLE).read_text("utf-8"), end="")


def run() -> None:
  """Runs the command."""
  errors.guard(main)


if __name__ == "__main__":
  run()
