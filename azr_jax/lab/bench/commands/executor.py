"""Measures programs per second of the executor.

The programs are those of `programs_heldout`, or of a JSON lines file with code,
input and output, like CRUXEval's. The keys:

  validation   programs per second with one input
  determinism  one input in two processes
  judging      eight inputs in one process
  .../endless  256 of these programs, five of which never end
  .../plain    the same in reused processes, with an alarm instead of a sandbox
  relative_rate     the sandbox's rate divided by the plain rate
  p50_ms, p99_ms  time from a program's start to its verdict, without queueing
  trainer_us   CPU microseconds of the trainer's process per program
  paper_step   seconds of verifying one training step of the paper's size
               (lab/bench/verification_load.py); the number of correct answers
               is fixed by construction
  .../endless  the same with three answers that never end
"""

import argparse
import dataclasses
import json
import pathlib
from typing import Any

from azr_jax.corpora.programs import heldout
from azr_jax.executor import Executor
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.lab.bench import device, throughput, verification_load
from azr_jax.tasks.programs.task import InductionTask, Task, Triplet

MEMORY_MB = 512
STEPS = 3  # Measured steps; the fastest counts.
ENDLESS_ANSWERS = 3


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the executor and the programs."""
  add = parser.add_argument
  add("--workers", type=int, nargs="+", default=[1, 2], help="executor sizes")
  add(
    "--timeout_s",
    type=float,
    default=2.0,
    help="CPU time limit of a program's call, s",
  )
  add("--programs", help="JSON lines file with code, input and output")


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Runs the programs in executors of each size; returns rates and times."""
  for workers in flags.workers:
    ExecutorSettings(
      workers=workers, timeout_s=flags.timeout_s, memory_mb=MEMORY_MB
    )
  triplets = _triplets(flags.programs)
  programs = [throughput.Snippet(task.code, task.input) for task in triplets]
  metrics: dict[str, Any] = {"machine": device.machine()}
  metrics |= throughput.report(programs, flags.workers, flags.timeout_s)
  for workers in flags.workers:
    with Executor(workers, flags.timeout_s, memory_mb=MEMORY_MB) as executor:
      name = f"paper_step/workers_{workers}"
      metrics[name] = _paper_step(executor, triplets, 0)
      metrics[f"{name}/endless"] = _paper_step(
        executor, triplets, ENDLESS_ANSWERS
      )
  return metrics


def _paper_step(
  executor: Executor, triplets: list[Triplet], endless: int
) -> dict[str, float]:
  """Returns the times of the fastest step; other load only slows it down."""
  times = [
    verification_load.measure(executor, triplets, endless) for _ in range(STEPS)
  ]
  fastest = min(times, key=lambda step: step.total_s)
  return dataclasses.asdict(fastest) | {"total_s": fastest.total_s}


def _triplets(path: str | None) -> list[Triplet]:
  """Reads programs with input and output from a file or the held-out tasks."""
  if path is None:
    return [_triplet(entry.task) for entry in heldout.read()]
  lines = pathlib.Path(path).read_text("utf-8-sig").split("\n")
  try:
    records = [json.loads(line) for line in lines if line.strip()]
    triplets = [Triplet(r["code"], r["input"], r["output"]) for r in records]
  except (ValueError, KeyError, TypeError) as error:
    raise ValueError(
      f"{path}: {error!r}; expected JSON lines with code, input and output"
    ) from None
  if len(triplets) < verification_load.PROGRAMS:
    raise ValueError(
      f"{path} has {len(triplets)} programs; expected at least "
      f"{verification_load.PROGRAMS}"
    )
  return triplets


def _triplet(task: Task) -> Triplet:
  if isinstance(task, InductionTask):
    return Triplet(task.code, task.inputs[0], task.outputs[0])
  assert isinstance(task, Triplet)
  return task
