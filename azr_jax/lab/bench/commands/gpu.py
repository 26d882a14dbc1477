"""Measures this GPU: updates and decoding, azr_jax beside PyTorch.

Each case is a command of `azr_jax.benchmark` in its own process, with the
settings that a run would choose. Each line of --out has a case's command and
output. If you repeat the command, it skips the measured cases, tries the others
and prints the table. The most important cases come first, --only selects some,
and all end at --deadline_s. Without PyTorch for CUDA, only azr_jax is measured.

The table's fractions are the shortest possible time over the measured time. The
shortest time follows from an update's FLOPs without recomputation, or from the
bytes that decoding must read, at the data sheet's rate. A GPU that
`azr_jax/parallel/chips.py` does not know has measured rates instead.
"""

import argparse
import importlib.util
import pathlib
import subprocess
import sys
from typing import Any

from azr_jax.lab.bench import case_runs, case_table, device, gpu_plan
from azr_jax.run import console

# Importing torch takes seconds; a cold disk may need more.
_TORCH_LIMIT_S = 120


def add_flags(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of the results, the cases and the time."""
  add = parser.add_argument
  add("--out", required=True, help="file of results, a JSON line per case")
  add("--show", action="store_true", help="only print the table of --out")
  add(
    "--only",
    nargs="+",
    default=[],
    metavar="WORD",
    help="cases whose names contain one of these, such as peak or 'decode 7B'",
  )
  add("--deadline_s", type=float, default=3600.0, help="seconds for all cases")
  add(
    "--tiny",
    action="store_true",
    help="try the cases with shapes that take seconds on a CPU",
  )


def measure(flags: argparse.Namespace) -> dict[str, Any]:
  """Runs the cases, prints the table and returns what failed."""
  machine, out = device.machine(), pathlib.Path(flags.out)
  cases = [
    case
    for case in gpu_plan.make(flags.tiny)
    if not flags.only or any(word in case.key for word in flags.only)
  ]
  if not cases:
    raise ValueError(
      f"--only {' '.join(flags.only)}: expected parts of names such as "
      f"{[case.key for case in gpu_plan.make()[:4]]}"
    )
  if not flags.show:
    if not _has_torch(flags.tiny):
      console.print_status("torch: not installed or without CUDA; skipped")
      cases = [case for case in cases if case.side != gpu_plan.TORCH]
    case_runs.run(cases, out, flags.deadline_s, console.print_status)
  rows = case_runs.read(out)
  console.print_status(case_table.show(cases, rows))
  found = [rows[case.key] for case in cases if case.key in rows]
  failed = {
    row["case"]: row[case_runs.ERROR] for row in found if case_runs.ERROR in row
  }
  return {
    "machine": machine,
    "out": str(out),
    "measured": len(found) - len(failed),
    "failed": failed,
    "not_run": len(cases) - len(found),
  }


def _has_torch(tiny: bool) -> bool:
  """Returns whether torch can be measured here; tiny cases also run on a CPU.

  Another process imports torch, because this one must leave the GPU to the
  cases.
  """
  if tiny or importlib.util.find_spec("torch") is None:
    return importlib.util.find_spec("torch") is not None
  code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
  done = subprocess.run(
    [sys.executable, "-c", code],
    check=False,
    capture_output=True,
    timeout=_TORCH_LIMIT_S,
  )
  return not done.returncode
