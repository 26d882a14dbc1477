"""SIGTERM: a host that is about to be taken away asks its run to save."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def watch_for_sigterm() -> Iterator[threading.Event]:
  """Yields an event that SIGTERM sets while the context lasts."""
  received = threading.Event()
  if threading.current_thread() is not threading.main_thread():
    yield received  # Only the main thread may handle signals.
    return
  previous = signal.signal(signal.SIGTERM, lambda *_: received.set())
  try:
    yield received
  finally:
    signal.signal(signal.SIGTERM, previous)
