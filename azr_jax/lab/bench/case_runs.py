"""Runs each case in its own process, and stores its measurements."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from azr_jax.lab.bench.gpu_plan import Case

Row: TypeAlias = dict[str, Any]

ERROR = "error"
# No case starts within this many seconds of the deadline.
_LEAST_S = 15.0
_SHOWN_LINES = 3
_MODULE = "azr_jax.benchmark"


def read(path: pathlib.Path) -> dict[str, Row]:
  """Returns the last row of each case; {} if there is no file.

  Args:
    path: the file of results. A last line that a killed run left unfinished is
      skipped.
  """
  if not path.exists():
    return {}
  rows = {}
  for line in path.read_text("utf-8").splitlines():
    try:
      row = json.loads(line)
    except json.JSONDecodeError:
      continue
    rows[row["case"]] = row
  return rows


def run(
  cases: Sequence[Case],
  path: pathlib.Path,
  deadline_s: float,
  say: Callable[[str], None],
  command: Sequence[str] = (sys.executable, "-m", _MODULE),
) -> None:
  """Runs the cases that have no result yet, and adds a line for each.

  Args:
    cases: the cases, in order.
    path: the file of results.
    deadline_s: seconds after which the running case is ended and no other one
      is started.
    say: prints a status line.
    command: the program, which gets a case's words as arguments.
  """
  done = {key for key, row in read(path).items() if ERROR not in row}
  end = time.monotonic() + deadline_s
  path.parent.mkdir(parents=True, exist_ok=True)
  _end_last_line(path)
  for case in cases:
    if case.key in done:
      continue
    left = end - time.monotonic()
    if left < min(_LEAST_S, case.limit_s):
      say(f"{case.key}: not started, {max(0, left):.0f} s are left")
      continue
    start = time.monotonic()
    found = _measure([*command, *case.words], min(case.limit_s, left))
    wall_s = time.monotonic() - start
    row = {"case": case.key, "words": case.words, "wall_s": wall_s, **found}
    with path.open("a", encoding="utf-8") as file:
      file.write(json.dumps(row) + "\n")
    say(f"{case.key}: {found.get(ERROR, 'measured')}, {wall_s:.0f} s")


def _end_last_line(path: pathlib.Path) -> None:
  """Adds the newline that a killed run did not write."""
  if path.exists() and not path.read_text("utf-8").endswith("\n"):
    with path.open("a", encoding="utf-8") as file:
      file.write("\n")


def _measure(command: Sequence[str], limit_s: float) -> Row:
  """Returns a command's JSON output, or {ERROR: the reason} without any."""
  with subprocess.Popen(
    command,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    env=_environment(os.environ),
    start_new_session=True,
  ) as process:
    try:
      out, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
      return {ERROR: f"ended after {limit_s:.0f} s"}
    finally:
      # Kill its children too, such as the processes in which torch compiles.
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
  if process.returncode:
    last = " / ".join(errors.strip().splitlines()[-_SHOWN_LINES:])
    return {ERROR: f"exit status {process.returncode}: {last}"}
  try:
    return json.loads(out[out.index("{\n") :])
  except ValueError:
    return {ERROR: "printed no JSON"}


def _environment(given: Mapping[str, str]) -> dict[str, str]:
  """Returns the environment of a case.

  JAX may take nearly the whole GPU, because nothing else runs there. It reuses
  no compiled program, so that `compile_s` measures a first start.
  """
  return {
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    **given,
  }
