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

  def take_expected(self, step: int, first_step: int, fail: bool) -> int:
    """Returns how many programs a step compiled, since the last call.

    Args:
      step: the step.
      first_step: the step that may compile.
      fail: whether another must not.

    Raises:
      RuntimeError: it did, with `fail`; the message names the programs.
    """
    compiled = self.take()
    if fail and compiled and step > first_step:
      raise RuntimeError(
        f"step {step} compiled {compiled}; expected every program to be "
        f"compiled by the end of step {first_step}"
      )
    return len(compiled)


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
