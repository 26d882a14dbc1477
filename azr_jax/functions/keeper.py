"""The parent of a worker. Ends the worker and all processes it started.

  python -m azr_jax.functions.keeper MEMORY_BYTES

The trainer starts a keeper by exec, and the keeper forks the worker. Orphans of
the worker, even in sessions of their own, become children of the keeper
(`PR_SET_CHILD_SUBREAPER`). The keeper kills all of them when the trainer closes
standard input or dies, when the worker ends, or when together they use too much
memory. It runs no user code, so nothing can block it.

Memory means resident memory: a limit on address space would also count what JAX
and PyTorch reserve but never touch. Only Linux exposes children and memory;
elsewhere the keeper ends the worker's session.
"""

import contextlib
import ctypes
import os
import pathlib
import select
import signal
import sys
import time

# The exit status after exceeding the limit of memory or processes.
TOO_MUCH = 121
# Exit status of a worker killed by a signal, minus the signal's number.
SIGNALLED = 128
# Maximum number of processes below a keeper.
MAX_PROCESSES = 256
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# Seconds between memory readings, and between searches for children.
_PAUSE_S, _CHILDREN_PAUSE_S = 0.05, 0.5
_PROC = pathlib.Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _sees_children() -> bool:
  """Returns whether this kernel lists a process's children."""
  return (_PROC / "self/task" / str(os.getpid()) / "children").exists()


def _children(pid: int) -> list[int]:
  """Returns the children of a process, [] if it has ended."""
  found: list[int] = []
  with contextlib.suppress(OSError):
    for thread in (_PROC / str(pid) / "task").iterdir():
      with contextlib.suppress(OSError):
        found += map(int, (thread / "children").read_text().split())
  return found


def _descendants(pid: int) -> list[int]:
  """Returns the children of a process, their children, and so on."""
  found = _children(pid)
  # The list grows while the loop reads it, so every generation is visited.
  for child in found:
    found += _children(child)
  return found


def _resident(pid: int) -> int:
  """Returns the resident bytes of a process, 0 if it has ended."""
  try:
    return (
      int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE_BYTES
    )
  except OSError:
    return 0


def _own_part(pid: int) -> int:
  """Returns the resident bytes of a process, with its share of shared pages.

  Slower than `_resident`.
  """
  with contextlib.suppress(OSError):
    for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
      if line.startswith("Pss:"):
        return int(line.split()[1]) << 10
  return 0


class _Watch:
  """Counts the processes below the keeper, and their memory."""

  def __init__(self, worker: int, memory_bytes: int):
    """Starts with the worker only.

    Args:
      worker: the worker's process id.
      memory_bytes: the limit of all processes together; 0 for no limit.
    """
    self._worker, self._limit = worker, memory_bytes
    self._pids, self._next = [worker], 0.0

  def exceeds_limit(self) -> bool:
    """Returns whether the limit of processes or of memory is exceeded."""
    now = time.monotonic()
    if now >= self._next:
      self._pids = _descendants(os.getpid())
      self._next = now + _CHILDREN_PAUSE_S
      if len(self._pids) > MAX_PROCESSES:
        return True
    if not self._limit or sum(map(_resident, self._pids)) <= self._limit:
      return False
    # Now count pages shared by forked processes only once.
    return len(self._pids) == 1 or sum(map(_own_part, self._pids)) > self._limit


def _reap(worker: int) -> int | None:
  """Reaps ended children. Returns the worker's status if it has ended."""
  found, pid = None, worker
  with contextlib.suppress(ChildProcessError):
    while pid:
      pid, status = os.waitpid(-1, os.WNOHANG)
      if pid == worker:
        code = os.waitstatus_to_exitcode(status)
        found = SIGNALLED - code if code < 0 else code
  return found


def _end_all(worker: int) -> None:
  """Kills the worker and all its descendants.

  Children of a killed process become children of this one.
  """
  if not _sees_children():
    with contextlib.suppress(OSError):
      os.killpg(worker, signal.SIGKILL)
    return
  with contextlib.suppress(ChildProcessError):
    while True:
      for pid in _children(os.getpid()):
        with contextlib.suppress(OSError):
          os.kill(pid, signal.SIGKILL)
      os.waitpid(-1, 0)


def _keep(worker: int, memory_bytes: int) -> int:
  """Watches a worker until it must end, and returns the exit status."""
  hangup = select.poll()
  hangup.register(0, 0)
  watch = _Watch(worker, memory_bytes)
  while True:
    is_closed = hangup.poll(1000 * _PAUSE_S)
    status = _reap(worker)
    if status is not None:
      return status
    if is_closed:
      return 0
    if watch.exceeds_limit():
      return TOO_MUCH


def _prctl(option: int, value: int) -> None:
  if sys.platform == "linux":
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main() -> None:
  """Forks the worker and watches it."""
  if _sees_children():
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
  keeper = os.getpid()
  pid = os.fork()
  if pid == 0:
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
      os._exit(0)
    from azr_jax.functions import worker

    worker.main()
    return
  status = _keep(pid, int(sys.argv[1]))
  _end_all(pid)
  os._exit(status)


if __name__ == "__main__":
  main()
