"""Measures what a child has used of its limits, whatever else the machine does.

| limit | what counts |
| --- | --- |
| of a call | CPU time of the child, from the call's begin |
| of a run | CPU time of the child, all calls together |
| of sleep | wall clock in which the child neither ran nor waited for a core |

A child has one thread, so each of these grows at most as fast as wall clock.
The zygote therefore looks at a child only when enough wall clock has gone by
for a limit to be reached, and looks again after what is left of it. Most
children end before the first look.

The kernel says how long a child waited for a core in `/proc/PID/schedstat`.
Where it does not, waiting counts as sleep, and the limit of sleep is
`BLIND_FACTOR` times as long.
"""

import os
import time

import frames

BLIND_FACTOR = 10.0


class Stopwatch:
  """The time that a child has used.

  Attributes:
    start: when the child was forked, on the monotonic clock.
  """

  def __init__(self, pid, call_s, run_s, sleep_s):
    self.start = time.monotonic()
    self._pid = pid
    self._call_s = call_s
    self._run_s = run_s
    self._sleep_s = sleep_s
    self._cpu_before_s = 0.0  # The CPU time of earlier calls.
    self._cpu_look = self.start + min(call_s, run_s)
    self._sleep_look = self.start + sleep_s

  def next_look(self):
    """Returns when a limit may be reached, on the monotonic clock."""
    return min(self._cpu_look, self._sleep_look)

  def begin_call(self):
    """Gives the next call its time; the child must not be reaped."""
    self._cpu_before_s = cpu_s(self._pid)
    left_s = min(self._call_s, self._run_s - self._cpu_before_s)
    self._cpu_look = time.monotonic() + left_s

  def reached(self):
    """Returns which limit is reached, of `frames.LIMITS`, or None.

    The child must not be reaped.
    """
    now = time.monotonic()
    if now < self.next_look():
      return None
    used_s = cpu_s(self._pid)
    call_left_s = self._cpu_before_s + self._call_s - used_s
    if call_left_s <= 0:
      return frames.CALL_TIMED_OUT
    if used_s >= self._run_s:
      return frames.RUN_TIMED_OUT
    self._cpu_look = now + min(call_left_s, self._run_s - used_s)
    if now >= self._sleep_look:
      left_s = self._sleep_left_s(now - self.start - used_s)
      if left_s <= 0:
        return frames.SLEPT
      self._sleep_look = now + left_s
    return None

  def _sleep_left_s(self, idle_s):
    """Returns how long a child may still sleep that did not run for idle_s."""
    waited_s = core_wait_s(self._pid)
    if waited_s is None:
      return self._sleep_s * BLIND_FACTOR - idle_s
    return self._sleep_s - (idle_s - waited_s)


def cpu_s(pid):
  """Returns the CPU seconds of a process that is not reaped."""
  # The number of a process's clock, as clock_getcpuclockid(3) returns it.
  return time.clock_gettime((~pid << 3) | 2)


def core_wait_s(pid):
  """Returns how long a process waited for a core; None if no one says so."""
  try:
    file = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
  except OSError:
    return None
  try:
    return int(os.read(file, 100).split()[1]) / 1e9
  except (OSError, ValueError, IndexError):
    return None
  finally:
    os.close(file)
