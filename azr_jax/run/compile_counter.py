"""Counts what XLA compiles, so that a run can show that it stopped."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"


class CompileCounter:
  """How many programs were compiled since it was started, and their names."""

  def __init__(self) -> None:
    self.names: list[str] = []

  def take(self) -> list[str]:
    """The programs since the last call."""
    taken, self.names = self.names, []
    return taken


@contextmanager
def count_compiles() -> Iterator[CompileCounter]:
  """A counter that listens while the context lasts."""
  counter = CompileCounter()
  listening = True

  def listen(event: str, duration_secs: float, **details: Any) -> None:
    del duration_secs
    if listening and event == _EVENT:
      counter.names.append(str(details.get("fun_name", "a program")))

  # JAX has no public way to take a listener back; it is made deaf instead.
  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    yield counter
  finally:
    listening = False
