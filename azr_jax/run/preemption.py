"""Watches for SIGTERM, which a host gets before it is taken away."""

import contextlib
import signal
import threading
from collections.abc import Iterator

# A run that SIGTERM ended prints this; `launch/tpu_worker.py` looks for it.
STOPPED = "stopped before its last step"


@contextlib.contextmanager
def watch_for_sigterm(is_wanted: bool = True) -> Iterator[threading.Event]:
  """Yields an event that SIGTERM sets while the context lasts.

  Args:
    is_wanted: False leaves SIGTERM as it is, so that the event is never set.
  """
  received = threading.Event()
  is_main = threading.current_thread() is threading.main_thread()
  # Python allows only the main thread to handle signals.
  if not is_wanted or not is_main:
    yield received
    return
  previous = signal.signal(signal.SIGTERM, lambda *_: received.set())
  try:
    yield received
  finally:
    signal.signal(signal.SIGTERM, previous)
