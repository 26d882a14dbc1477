"""Counts the programs that XLA compiles, so that a run shows when it stops."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"


class CompileCounter:
  """Holds the names of the programs that were compiled."""

  def __init__(self) -> None:
    self.names: list[str] = []

  def take(self) -> list[str]:
    """Returns the programs that were compiled since the last call."""
    taken, self.names = self.names, []
    return taken


@contextmanager
def count_compiles() -> Iterator[CompileCounter]:
  """Yields a counter that listens while the context lasts."""
  counter = CompileCounter()
  listening = True

  def listen(event: str, duration_secs: float, **details: Any) -> None:
    del duration_secs
    if listening and event == _EVENT:
      counter.names.append(str(details.get("fun_name", "a program")))

  # JAX cannot remove a listener, so this one ignores events after the context.
  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    yield counter
  finally:
    listening = False
