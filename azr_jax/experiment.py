"""Runs an experiment of `experiments/`, and analyses it according to its plan.

  python -m azr_jax.experiment NAME --workdir=DIR [--cores=2] [--budget_hours=H]
    [--rehearse] [--analyse] [--dry_run]

Trains every arm with every seed, one run per core, scores finished runs, and
stops when all is done or the core-hours are spent. Then writes the results to
`experiments/NAME`: results.md, results.json, figure.png, and in `runs/` the
files that the plan asks for from each finished run. If killed, the same command
resumes; with a new --workdir it resumes from the files in `runs/`.
"""

import os
import pathlib
import sys

from azr_jax.cli import errors
from azr_jax.lab.experiments import checks, command, jobs, plan_file
from azr_jax.lab.experiments.folders import Workdir


def main() -> None:
  """Runs what is missing, and writes the results."""
  parser = errors.Parser(__doc__, "azr_jax.experiment")
  parser.add_argument("name", help="NAME of experiments/NAME, or a folder")
  parser.add_argument("--workdir", required=True, help="folder for all runs")
  parser.add_argument(
    "--cores", type=int, default=1, help="concurrent runs, one per core"
  )
  flag = "--budget_hours"
  parser.add_argument(
    *(flag, flag.replace("_", "-")),
    type=float,
    default=float("inf"),
    help="core-hours that this command may use of the plan's budget",
  )
  parser.add_argument(
    "--rehearse",
    action="store_true",
    help="try all commands with one seed and few steps, in WORKDIR/rehearsal",
  )
  parser.add_argument(
    "--analyse", action="store_true", help="only write the results"
  )
  parser.add_argument(
    "--dry_run", action="store_true", help="only print the commands"
  )
  words = parser.parse_args()
  available = sorted(os.sched_getaffinity(0))
  if not 1 <= words.cores <= len(available):
    parser.error(f"--cores={words.cores}: expected 1 to {len(available)}")
  folder = plan_file.folder_of(words.name)
  plan, path = plan_file.read(folder), pathlib.Path(words.workdir).expanduser()
  if words.rehearse:
    plan, path = plan.rehearsal(), path / "rehearsal"
  workdir = Workdir(path, plan)
  checks.check_arms(plan)
  todo = jobs.make(workdir)
  if words.dry_run:
    print("\n".join(job.line() for job in todo))
    return
  cores = [] if words.analyse else available[: words.cores]
  out = path if words.rehearse else folder
  sys.exit(command.run(workdir, todo, folder, out, cores, words.budget_hours))


def run() -> None:
  """Runs the command."""
  errors.guard(main)


if __name__ == "__main__":
  run()
