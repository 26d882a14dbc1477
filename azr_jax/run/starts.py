"""Records when a run was started, by which code and on which devices.

A resumed run has several starts, maybe with other code or devices. The config
says what a run learns from; these records say what it ran on.
"""

import collections
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import subprocess
from typing import Any

import jax

from azr_jax.parallel.hosts import Hosts
from azr_jax.run import json_lines, storage

# A file in a run's folder, with one JSON object per start.
STARTS = "starts.jsonl"
_PACKAGE = pathlib.Path(__file__).parents[1]
_GIT_TIMEOUT_S = 10.0
_DIGITS = 12  # Digits kept of a commit hash.
# Runs of experiments store files while other runs start, so those files do not
# make the code dirty.
_CODE = (":(top)", ":(top,exclude,glob)experiments/*/runs/**")


def record(folder: pathlib.Path, hosts: Hosts, done: int) -> None:
  """Adds a start to a run's folder, on the primary host.

  Args:
    folder: the run's folder.
    hosts: the run's processes.
    done: the last finished step; 0 for a new run.
  """
  if not hosts.is_primary:
    return
  path = folder / STARTS
  earlier = (
    path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
  )
  if not earlier.endswith("\n"):
    earlier += "\n" if earlier else ""  # The last line is incomplete.
  line = json.dumps(_describe(hosts, done))
  storage.write_if_possible(path, f"{earlier}{line}\n")


def _describe(hosts: Hosts, done: int) -> dict[str, Any]:
  """Describes this process, its host and its devices."""
  now = datetime.datetime.now(datetime.UTC)
  kinds = collections.Counter(device.device_kind for device in jax.devices())
  return {
    "time": now.isoformat(timespec="seconds"),
    "done": done,
    "commit": commit(_PACKAGE),
    "version": _version(),
    "jax": jax.__version__,
    "python": platform.python_version(),
    "devices": dict(kinds),
    "processes": hosts.count,
    "cores": len(os.sched_getaffinity(0)),
    "cpu": _cpu_model(),
  }


def _cpu_model() -> str | None:
  """Returns the model of this host's CPU, or None if unknown."""
  try:
    text = pathlib.Path("/proc/cpuinfo").read_text("utf-8", "replace")
  except OSError:
    text = ""
  found = re.search(r"^model name\s*: *(\S.*)$", text, re.MULTILINE)
  if found:
    return found[1].strip()
  name = platform.processor()
  return name if name not in ("", platform.machine()) else None


def commits(folder: pathlib.Path) -> list[str]:
  """Returns the distinct commits that a run was started at, in order.

  Args:
    folder: the run's folder, which may have no record.
  """
  path = folder / STARTS
  rows = json_lines.read(path) if path.exists() else []
  return [*dict.fromkeys(row["commit"] for row in rows if row.get("commit"))]


def commit(folder: pathlib.Path) -> str | None:
  """Returns the git commit of a code folder, or None if it is not tracked.

  The commit ends with "-dirty" if a file of the repository has uncommitted
  changes, except for stored runs of experiments.

  Args:
    folder: a package, with an `__init__.py`.
  """
  git = ["git", "-C", str(folder)]
  try:
    # An installed package may lie inside an unrelated repository.
    found, changed = [
      subprocess.run(
        [*git, *arguments],
        capture_output=True,
        check=True,
        text=True,
        timeout=_GIT_TIMEOUT_S,
      ).stdout.strip()
      for arguments in (
        ["ls-files", "--error-unmatch", "__init__.py"],
        ["rev-parse", f"--short={_DIGITS}", "HEAD"],
        ["status", "--porcelain", "--untracked-files=no", "--", *_CODE],
      )
    ][1:]
  except (OSError, subprocess.SubprocessError):
    return None
  return f"{found}-dirty" if changed else found


def _version() -> str | None:
  """Returns the version of the installed package, None if not installed."""
  try:
    return importlib.metadata.version("azr_jax")
  except importlib.metadata.PackageNotFoundError:
    return None
