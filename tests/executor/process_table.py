"""Inspects processes from outside, through /proc."""

import os
import pathlib
import time


def children_of(pids):
  """Returns living processes whose parent is one of `pids`."""
  return [
    pid for pid, state, parent in _all() if parent in pids and state != "Z"
  ]


def zombies_of(pids):
  """Returns dead children of `pids` that have not been reaped."""
  return [
    pid for pid, state, parent in _all() if parent in pids and state == "Z"
  ]


def servers_of(pool):
  """Returns the living server processes of a pool, children of this one."""
  zygotes = pool.processes()
  parents = {parent for pid, _, parent in _all() if pid in zygotes}
  return [pid for pid in children_of([os.getpid()]) if pid in parents]


def is_alive(pid):
  """Returns whether the process exists and is not a zombie."""
  return any(pid == other and state != "Z" for other, state, _ in _all())


def wait_until(condition, seconds=10.0):
  """Waits until a condition holds; returns False on a timeout."""
  end = time.monotonic() + seconds
  while not condition() and time.monotonic() < end:
    time.sleep(0.02)
  return condition()


def descriptors(pids):
  """Returns the number of open descriptors of each process.

  None for a process that only root may inspect, such as a zygote.
  """
  counts: list[int | None] = []
  for pid in pids:
    try:
      counts.append(len(os.listdir(f"/proc/{pid}/fd")))
    except PermissionError:
      counts.append(None)
  return counts


def resident_mb(pid):
  """Returns the resident memory of a process, in MiB."""
  pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
  return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _all():
  for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
    try:
      state, parent = entry.read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
      continue
    yield int(entry.parent.name), state, int(parent)
