"""Measures the readers of responses on texts that are hard to read.

The trainer waits for its readers, so each must take time in proportion to the
text, whatever a model writes. Keys:

  READER/input  the text on which it takes longest
  READER/N      CPU seconds for N characters of that text; a reader that refuses
                longer texts unread is also measured just below its limit
  faults        where the time grows faster than the text, takes longer than
                the cap, or ends in an exception
"""

import argparse
from typing import Any

from azr_jax.lab.bench import device
from azr_jax.lab.bench.readers import growth
from azr_jax.lab.bench.readers.table import READERS

SIZES = (1 << 12, 1 << 16, 1 << 20)


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the lengths and the readers."""
  add = parser.add_argument
  add("--sizes", type=int, nargs="+", default=SIZES, help="characters, rising")
  add("--readers", nargs="+", default=list(READERS), help="names; default: all")


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Runs the readers; returns their times on the text that takes longest.

  Raises:
    ValueError: a reader is unknown.
  """
  for name in flags.readers:
    if name not in READERS:
      raise ValueError(f"--readers {name!r}: expected some of {[*READERS]}")
  metrics: dict[str, Any] = {"machine": device.machine()}
  faults: dict[str, str] = {}
  for name in flags.readers:
    grown = list(growth.measure([name], flags.sizes))
    slowest = max(grown, key=lambda one: max(one.seconds.values()))
    metrics[f"{name}/input"] = slowest.text
    for length, seconds in slowest.seconds.items():
      metrics[f"{name}/{length}"] = seconds
    faults |= {f"{name}/{g.text}": g.fault for g in grown if g.fault}
  return metrics | {"faults": faults}
