"""Work of other threads that must run in the worker's thread."""

import collections
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Tasks:
  """A queue of functions with the futures of their results.

  Only the worker's thread may call it, except for `busy_s`.
  """

  def __init__(self, now: Callable[[], float] = time.monotonic):
    """Starts empty.

    Args:
      now: a clock, seconds.
    """
    self._now = now
    self._waiting: collections.deque[tuple[Callable[[], Any], Future[Any]]] = (
      collections.deque()
    )
    self._busy_s = 0.0
    self._start: float | None = None

  def __bool__(self) -> bool:
    return bool(self._waiting)

  @property
  def busy_s(self) -> float:
    """Seconds that tasks have run, the present one included."""
    start, busy_s = self._start, self._busy_s
    return busy_s if start is None else busy_s + self._now() - start

  def add(self, task: Callable[[], Any], future: "Future[Any]") -> None:
    """Adds a task; a future that is cancelled before it runs drops it."""
    self._waiting.append((task, future))

  def run_next(self) -> None:
    """Runs the next task, if there is one."""
    if not self._waiting:
      return
    task, future = self._waiting.popleft()
    if not future.set_running_or_notify_cancel():
      return  # The client is gone.
    self._start = self._now()
    try:
      future.set_result(task())
    except Exception as error:  # noqa: BLE001 - the caller gets it.
      future.set_exception(error)
    finally:
      spent = self._now() - self._start
      self._start = None
      self._busy_s += spent

  def fail_all(self, error: Exception) -> None:
    """Fails every waiting task."""
    for _, future in self._waiting:
      if future.set_running_or_notify_cancel():
        future.set_exception(error)
    self._waiting.clear()
