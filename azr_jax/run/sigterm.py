"""Watches for SIGTERM, which a host gets before it is taken away."""

import contextlib
import signal
import threading
from collections.abc import Iterator

# A run that SIGTERM ended prints this; `launch/tpu_worker.py` looks for it.
STOPPED = "stopped before its last step"


# The exit status of a process that SIGTERM has ended.
EXIT_STATUS = 128 + signal.SIGTERM


@contextlib.contextmanager
def watch_for_sigterm(
  is_wanted: bool = True, saves_at_exit: bool = False
) -> Iterator[threading.Event]:
  """Yields an event that SIGTERM sets while the context lasts.

  Args:
    is_wanted: whether somebody looks at the event; otherwise SIGTERM ends the
      process.
    saves_at_exit: whether it then ends by an exception, so that contexts which
      save something are left, and not at once.

  Raises:
    SystemExit: SIGTERM came and `saves_at_exit`.
  """
  received = threading.Event()
  is_main = threading.current_thread() is threading.main_thread()
  # Python allows only the main thread to handle signals.
  if not is_main or not (is_wanted or saves_at_exit):
    yield received
    return

  def handle(*_: object) -> None:
    if not is_wanted:
      # A second one must not cut short what is saved at the exit.
      signal.signal(signal.SIGTERM, signal.SIG_IGN)
      raise SystemExit(EXIT_STATUS)
    received.set()

  previous = signal.signal(signal.SIGTERM, handle)
  try:
    yield received
  finally:
    signal.signal(signal.SIGTERM, previous)
