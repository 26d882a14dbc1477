"""Throughput, as JSON: what this machine does, and ratios that travel.

python -m azr_jax.benchmark executor [--workers 1 2] [--timeout_s 2.0]

The programs are those of `programs_heldout`.
"""

import argparse
import json
from typing import Any

from azr_jax.executor import throughput
from azr_jax.tasks.programs import heldout
from azr_jax.tasks.programs.task import InductionTask, Task


def _executor(flags: argparse.Namespace) -> dict[str, Any]:
  programs = [
    throughput.Program(entry.task.code, _argument(entry.task))
    for entry in heldout.read()
  ]
  return throughput.report(programs, flags.workers, flags.timeout_s)


def _argument(task: Task) -> str:
  return task.inputs[0] if isinstance(task, InductionTask) else task.input


def run() -> None:
  """The console script."""
  parser = argparse.ArgumentParser(prog="azr_jax.benchmark")
  commands = parser.add_subparsers(required=True)
  executor = commands.add_parser(
    "executor", help="programs a second, beside a pool without walls"
  )
  executor.add_argument("--workers", type=int, nargs="+", default=[1, 2])
  executor.add_argument("--timeout_s", type=float, default=2.0)
  executor.set_defaults(measure=_executor)
  flags = parser.parse_args()
  print(json.dumps(flags.measure(flags), indent=2))


if __name__ == "__main__":
  run()
