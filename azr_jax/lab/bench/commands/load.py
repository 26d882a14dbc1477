"""Checks that the executor's verdicts do not depend on load.

Groups of eight correct answers, whose programs need 5, 25 or 75 % of a call's
CPU time limit, run repeatedly in a pool on one core. Keys are
CONDITION/FRACTION:

  alone    nothing else runs on the core
  busy     eight processes that never wait share the core
  endless  six answers that never end are in the pool, too

  correct, total   answers that were graded correct, and all answers
  over_wall_limit  answers whose wall-clock time exceeded the CPU time limit
  max_cpu          maximum CPU time of an answer, as a fraction of the limit
  max_wall         maximum wall-clock time, as a multiple of the limit

The defaults take a quarter of an hour. Exits with an error if any answer was
not graded correct.
"""

import argparse
import dataclasses
from typing import Any

from azr_jax.lab.bench import device, load


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the measurement."""
  add = parser.add_argument
  add(
    "--repeats",
    type=int,
    default=50,
    help="groups of answers per condition and fraction",
  )
  add(
    "--timeout_s", type=float, default=0.25, help="CPU time limit of a call, s"
  )
  add("--core", type=int, help="number of the core; by default the first")


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Runs the answers in each condition; returns the counts."""
  if flags.repeats < 1:
    raise ValueError(f"--repeats={flags.repeats}: expected 1 or more")
  answers = load.measure(flags.timeout_s, flags.repeats, core=flags.core)
  for name, found in answers.items():
    if found.correct < found.total:
      raise ValueError(
        f"{name}: {found.correct} of {found.total} answers were correct; "
        "expected all"
      )
  return {"machine": device.machine()} | {
    name: dataclasses.asdict(found) for name, found in answers.items()
  }
