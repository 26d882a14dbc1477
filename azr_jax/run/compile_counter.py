"""Counts the programs that XLA compiles, to show when compilation stops."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"


class CompileCounter:
  """The names of compiled programs."""

  def __init__(self) -> None:
    self.names: list[str] = []

  def take(self) -> list[str]:
    """Returns the programs compiled since the last call."""
    taken, self.names = self.names, []
    return taken

  def take_expected(self, step: int, first_step: int, fail: bool) -> int:
    """Returns the number of programs a step compiled, since the last call.

    Args:
      step: the step that has just run.
      first_step: the only step that is expected to compile.
      fail: whether to raise if another step compiles.

    Raises:
      RuntimeError: a later step compiled, with `fail`. The message names the
        programs.
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
  """Yields a counter that is active inside the context."""
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
