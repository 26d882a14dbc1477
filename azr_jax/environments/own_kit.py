"""Environments that are a user's own classes; see `protocol.py`."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from azr_jax.environments import protocol
from azr_jax.environments.protocol import Kit, Observation, Turn
from azr_jax.functions import spec as spec_lib
from azr_jax.functions.spec import Function
from azr_jax.tools import function_tool

_NEEDED = "tasks", "begin", "step"


def load(name: str, arguments: Mapping[str, Any]) -> Kit:
  """Returns the environment of a class, FILE.py:CLASS or MODULE:CLASS.

  Raises:
    ValueError: the class cannot be imported or instantiated, or lacks a method.
  """
  cls = spec_lib.find(Function(name, name))
  lacking = [one for one in _NEEDED if not callable(getattr(cls, one, None))]
  if lacking:
    raise ValueError(
      f"{name}: {lacking[0]} is missing: expected a class with {_NEEDED}"
    )
  try:
    first = cls(**arguments)
  except TypeError as error:
    raise ValueError(f"{name}: {error}") from error

  def tasks(limit: int) -> list[Mapping[str, Any]]:
    return list(itertools.islice(first.tasks(), limit or None))

  return Kit(tasks, lambda task: _Episode(lambda: cls(**arguments), task))


class _Episode:
  """An episode, run by one object of the class."""

  def __init__(self, make: Callable[[], Any], task: Mapping[str, Any]):
    self._environment, self._task = make(), task

  def begin(self) -> Observation:
    """Returns the prompt of the object's `begin`, and its `tools`."""
    shown = protocol.messages(self._environment.begin(dict(self._task)))
    functions = getattr(self._environment, "tools", ())
    return Observation(
      shown, [function_tool.make(one).schema for one in functions]
    )

  def step(self, reply: str, is_cut: bool) -> Turn:
    """Returns the turn of the object's `step`.

    Raises:
      TypeError: `step` did not return a `Turn`.
    """
    turn = self._environment.step(reply)
    if not isinstance(turn, Turn):
      raise TypeError(f"step returned {turn!r:.80}: expected a Turn")
    return turn

  def finish(self) -> Turn:
    """Returns the turn of the object's `finish`, if it has one."""
    finish = getattr(self._environment, "finish", None)
    return finish() if finish is not None else Turn(is_done=True)

  def close(self) -> None:
    """Calls the object's `close`, if it has one."""
    close = getattr(self._environment, "close", None)
    if close is not None:
      close()
