"""Shows that the executor's verdicts do not depend on load.

Programs that need 5, 25 and 75 % of a call's CPU time get eight right answers
each, again and again, in a pool on one core. Keys are CONDITION/FRACTION:

  alone    nothing else runs on the core
  busy     eight processes that never wait share it
  endless  six answers that never end are in the pool too

  correct, of    how many answers were found correct, of how many
  late         how many took more wall clock than the limit of CPU time
  max_cpu     the most CPU time of an answer, as a fraction of the limit
  max_wall    the most wall clock of an answer, as a multiple of the limit

With the defaults it takes a quarter of an hour. It ends with an error if an
answer was not found right.
"""

import argparse
import dataclasses
from typing import Any

from azr_jax.lab.bench import device, load


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the measurement."""
  add = parser.add_argument
  add("--repeats", type=int, default=50, help="of each group of answers")
  add("--timeout_s", type=float, default=0.25, help="CPU seconds of a call")
  add("--core", type=int, help="the core to use; by default the first")


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Runs the answers in each condition; returns what was found."""
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
