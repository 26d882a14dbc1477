"""Watches for SIGTERM, which a host receives before it is preempted."""

import contextlib
import signal
import threading
from collections.abc import Iterator

# A run that stops on SIGTERM prints this. `launch/tpu_worker.py` looks for it.
STOPPED = "stopped before its last step"


# The exit status of a process that ended on SIGTERM.
EXIT_STATUS = 128 + signal.SIGTERM


@contextlib.contextmanager
def watch_for_sigterm(
  is_wanted: bool = True, saves_at_exit: bool = False
) -> Iterator[threading.Event]:
  """Yields an event that SIGTERM sets inside the context.

  Args:
    is_wanted: whether the caller checks the event. Otherwise SIGTERM ends the
      process.
    saves_at_exit: whether SIGTERM then raises an exception instead of ending
      the process at once, so that contexts can save their data.

  Raises:
    SystemExit: SIGTERM arrived, with `saves_at_exit`.
  """
  received = threading.Event()
  is_main = threading.current_thread() is threading.main_thread()
  # Python allows only the main thread to handle signals.
  if not is_main or not (is_wanted or saves_at_exit):
    yield received
    return

  def handle(*_: object) -> None:
    if not is_wanted:
      # A second SIGTERM must not interrupt what is saved at exit.
      signal.signal(signal.SIGTERM, signal.SIG_IGN)
      raise SystemExit(EXIT_STATUS)
    received.set()

  previous = signal.signal(signal.SIGTERM, handle)
  try:
    yield received
  finally:
    signal.signal(signal.SIGTERM, previous)
