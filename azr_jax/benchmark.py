"""Throughput, as JSON: what this machine does, and ratios that travel.

python -m azr_jax.benchmark executor [--workers 1 2] [--timeout_s 2.0]
  [--programs FILE.jsonl]

The programs are those of `programs_heldout`, or of a file whose lines have
`code`, `input` and `output`, as CRUXEval's do.

What the keys hold:
  machine      cores, Python, kernel, and the load before the start: above
               about 0.5, something else is running
  stages       of one program alone: median microseconds and page faults of each
               stage of its process, from the zygote's fork to its end
  bound        their sum, and shares of it: starting and ending a process, and
               page faults (which are part of every stage)
  validation   one input
  determinism  one input in two processes
  judging      eight inputs in one process
  .../endless  256 of these programs, five of which never end
  .../plain    the same in reused processes, without any wall but an alarm
  of_plain     our rate as a share of that
  p50_ms, p99_ms  from a program's start to its verdict, its wait left out
  paper_step   seconds for the verification of one step of the paper's size
               (tasks/programs/verification_step.py); how many of the answers
               are right is by construction
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
from typing import Any

from azr_jax.executor import Executor, throughput
from azr_jax.executor.settings import Settings
from azr_jax.tasks.programs import heldout, verification_step
from azr_jax.tasks.programs.task import InductionTask, Task, Triplet

STEPS = 3


def _executor(flags: argparse.Namespace) -> dict[str, Any]:
  for workers in flags.workers:
    Settings(workers, flags.timeout_s, memory_mb=512).check()
  triplets = _triplets(flags.programs)
  programs = [throughput.Program(task.code, task.input) for task in triplets]
  found = {"machine": _machine()}
  found |= throughput.report(programs, flags.workers, flags.timeout_s)
  for workers in flags.workers:
    found[f"paper_step/workers_{workers}"] = _paper_step(
      workers, flags.timeout_s, triplets
    )
  return found


def _machine() -> dict[str, Any]:
  return {
    "cores": os.cpu_count(),
    "python": platform.python_version(),
    "kernel": platform.release(),
    "load": os.getloadavg()[0],
  }


def _paper_step(
  workers: int, timeout_s: float, triplets: list[Triplet]
) -> dict[str, float]:
  """The quickest of a few; what else ran on the machine only adds."""
  with Executor(workers, timeout_s, memory_mb=512) as executor:
    times = [
      verification_step.measure(executor, triplets) for _ in range(STEPS)
    ]
  best = min(times, key=lambda step: step.total_s)
  return dataclasses.asdict(best) | {"total_s": best.total_s}


def _triplets(path: str | None) -> list[Triplet]:
  if path is None:
    return [_triplet(entry.task) for entry in heldout.read()]
  lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
  try:
    records = [json.loads(line) for line in lines if line.strip()]
    found = [Triplet(r["code"], r["input"], r["output"]) for r in records]
  except (ValueError, KeyError, TypeError) as error:
    raise ValueError(
      f"{path}: {error!r}; expected JSON lines with code, input and output"
    ) from None
  if len(found) < verification_step.PROGRAMS:
    raise ValueError(
      f"{path} has {len(found)} programs; expected at least "
      f"{verification_step.PROGRAMS}"
    )
  return found


def _triplet(task: Task) -> Triplet:
  if isinstance(task, InductionTask):
    return Triplet(task.code, task.inputs[0], task.outputs[0])
  return task


def run() -> None:
  """The console script."""
  parser = argparse.ArgumentParser(
    prog="azr_jax.benchmark",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  commands = parser.add_subparsers(required=True)
  executor = commands.add_parser(
    "executor", help="programs a second, beside a pool without walls"
  )
  executor.add_argument("--workers", type=int, nargs="+", default=[1, 2])
  executor.add_argument("--timeout_s", type=float, default=2.0)
  executor.add_argument("--programs", help="a file of JSON lines")
  executor.set_defaults(measure=_executor)
  flags = parser.parse_args()
  try:
    found = flags.measure(flags)
  except (ValueError, OSError) as error:
    parser.error(str(error))
  print(json.dumps(_rounded(found), indent=2))


def _rounded(found: Any) -> Any:
  """Four significant digits: more would be noise."""
  if isinstance(found, dict):
    return {name: _rounded(value) for name, value in found.items()}
  return float(f"{found:.4g}") if isinstance(found, float) else found


if __name__ == "__main__":
  run()
