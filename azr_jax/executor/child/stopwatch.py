"""Measures how much of its time limits a child has used, independent of load.

| limit | what counts |
| --- | --- |
| call | the child's CPU time since the call started |
| run | the child's CPU time, all calls together |
| sleep | wall-clock time in which the child neither ran nor waited for a core |

If each call has its own process, the pool passes the rest of the run and sleep
limits on to the next one.

A child has one thread, so each of these times grows no faster than wall-clock
time. The zygote therefore checks a child only once enough wall-clock time has
passed for a limit to be reached, and again after the remaining time. Most
children end before the first check.

The kernel reports how long a child waited for a core in `/proc/PID/schedstat`,
where a wait is counted only once it is over. So a child that is runnable at
every check may sleep for twice the limit. Without this file, waiting counts as
sleep, and the sleep limit is `NO_SCHEDSTAT_FACTOR` times as long.
"""

import os
import time

import frames

NO_SCHEDSTAT_FACTOR = 10.0
RECHECK_S = 0.05  # Minimum time until a child is checked for sleep again.
UNCOUNTED_S = 0.01  # Shorter idle times do not count as sleep.
# Descriptor of this process's schedstat; -1 if missing.
_own_waits: int | None = None


class Stopwatch:
  """The time that a child has used.

  Attributes:
    start: when the child was forked, on the monotonic clock.
  """

  def __init__(
    self, pid: int, call_s: float, run_s: float, sleep_s: float
  ) -> None:
    self.start = time.monotonic()
    self._own_wait_s = own_wait_s()
    self._pid = pid
    self._call_s = call_s
    self._run_s = run_s
    self._sleep_s = sleep_s
    self._cpu_before_s = 0.0  # The CPU time of earlier calls.
    self._cpu_check_at = self.start + min(call_s, run_s)
    self._sleep_check_at = self.start + sleep_s
    # At the last check for sleep: for how many seconds the child had not run,
    # and how often it had been scheduled on a core.
    self._idle_before_s = 0.0
    self._turns_before = 0

  def next_check(self) -> float:
    """Returns when a limit may be reached, on the monotonic clock."""
    return min(self._cpu_check_at, self._sleep_check_at)

  def begin_call(self) -> None:
    """Starts the next call's limit. The child must not have been reaped."""
    self._cpu_before_s = cpu_s(self._pid)
    left_s = min(self._call_s, self._run_s - self._cpu_before_s)
    self._cpu_check_at = time.monotonic() + left_s

  def reached(self) -> int | None:
    """Returns the limit in `frames.LIMITS` that is reached, or None.

    The child must not have been reaped.
    """
    now = time.monotonic()
    if now < self.next_check():
      return None
    used_s = cpu_s(self._pid)
    call_left_s = self._cpu_before_s + self._call_s - used_s
    if call_left_s <= 0:
      return frames.CALL_TIMED_OUT
    if used_s >= self._run_s:
      return frames.RUN_TIMED_OUT
    self._cpu_check_at = now + min(call_left_s, self._run_s - used_s)
    if now >= self._sleep_check_at:
      slept_s = self._slept_s(now - self.start - used_s)
      if slept_s >= self._sleep_s:
        return frames.SLEPT
      left_s = max(self._sleep_s - slept_s, RECHECK_S)
      self._sleep_check_at = now + left_s
    return None

  def slept_s(self) -> float:
    """Returns for how many seconds a child that has ended slept.

    The zygote's own waits for a core are subtracted, because they delay its
    notice of the end. The child must not have been reaped.
    """
    idle_s = time.monotonic() - self.start - cpu_s(self._pid)
    if idle_s < UNCOUNTED_S:
      return 0.0
    late_s = own_wait_s() - self._own_wait_s
    return max(0.0, self._slept_s(idle_s) - late_s)

  def _slept_s(self, idle_s: float) -> float:
    """Returns a lower bound on the sleep of a child that was idle for `idle_s`.

    If the kernel does not report how much of that time was spent waiting for a
    core, returns a fraction of it.
    """
    seen = core_waits(self._pid)
    if seen is None:
      return idle_s / NO_SCHEDSTAT_FACTOR
    waited_s, turns, is_runnable = seen
    if is_runnable:
      # It may be waiting now. A wait at the last check is over if the child has
      # been scheduled since.
      is_over = turns > self._turns_before
      slept_s = max(0.0, self._idle_before_s - waited_s) if is_over else 0.0
    else:
      slept_s = idle_s - waited_s
    self._idle_before_s, self._turns_before = idle_s, turns
    return slept_s


def cpu_s(pid: int) -> float:
  """Returns the CPU seconds of a process that has not been reaped."""
  # The process's clock id, as clock_getcpuclockid(3) returns it.
  return time.clock_gettime((~pid << 3) | 2)


def core_waits(pid: int) -> tuple[float, int, bool] | None:
  """Returns (waited_s, turns, is_runnable) of a process, or None if unknown.

  waited_s: the total length of finished waits for a core. turns: how often the
  process was scheduled on a core. is_runnable: whether it is running or waiting
  for a core now.
  """
  try:
    _, waited_ns, turns = _read(pid, "schedstat").split()
    # The second field, a name in parentheses, may contain any characters.
    state = _read(pid, "stat").rpartition(b")")[2].split()[0]
    return int(waited_ns) / 1e9, int(turns), state == b"R"
  except (OSError, ValueError, IndexError):
    return None


def own_wait_s() -> float:
  """Returns how many seconds this process waited for a core; 0 if unknown."""
  global _own_waits
  if _own_waits is None:
    try:
      _own_waits = os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
      _own_waits = -1
  if _own_waits < 0:
    return 0.0
  return int(os.pread(_own_waits, 1024, 0).split()[1]) / 1e9


def _read(pid: int, name: str) -> bytes:
  file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
  try:
    return os.read(file, 1024)
  finally:
    os.close(file)
