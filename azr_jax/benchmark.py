"""Throughput, as JSON: what this machine does, and ratios that travel.

python -m azr_jax.benchmark executor [--workers 1 2] [--timeout_s 2.0]
  [--programs FILE.jsonl]

The programs are those of `programs_heldout`, or of a file whose lines have
`code`, `input` and `output`, as CRUXEval's do.
"""

import argparse
import dataclasses
import json
import pathlib
from typing import Any

from azr_jax.executor import Executor, throughput
from azr_jax.tasks.programs import heldout, verification_step
from azr_jax.tasks.programs.task import InductionTask, Task, Triplet

STEPS = 3


def _executor(flags: argparse.Namespace) -> dict[str, Any]:
  triplets = _triplets(flags.programs)
  programs = [throughput.Program(task.code, task.input) for task in triplets]
  found = throughput.report(programs, flags.workers, flags.timeout_s)
  for workers in flags.workers:
    found[f"paper_step/workers_{workers}"] = _paper_step(
      workers, flags.timeout_s, triplets
    )
  return found


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
  records = [json.loads(line) for line in lines]
  return [Triplet(r["code"], r["input"], r["output"]) for r in records]


def _triplet(task: Task) -> Triplet:
  if isinstance(task, InductionTask):
    return Triplet(task.code, task.inputs[0], task.outputs[0])
  return task


def run() -> None:
  """The console script."""
  parser = argparse.ArgumentParser(prog="azr_jax.benchmark")
  commands = parser.add_subparsers(required=True)
  executor = commands.add_parser(
    "executor", help="programs a second, beside a pool without walls"
  )
  executor.add_argument("--workers", type=int, nargs="+", default=[1, 2])
  executor.add_argument("--timeout_s", type=float, default=2.0)
  executor.add_argument("--programs", help="JSON lines; see above")
  executor.set_defaults(measure=_executor)
  flags = parser.parse_args()
  print(json.dumps(flags.measure(flags), indent=2))


if __name__ == "__main__":
  run()
