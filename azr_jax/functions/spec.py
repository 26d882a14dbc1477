"""Functions of users, as worker processes find them."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from azr_jax.config import named
from azr_jax.functions import by_value


@dataclasses.dataclass(frozen=True)
class Function:
  """A function as a worker process gets it.

  Attributes:
    name: for metrics and messages.
    spec: as in `config/named.py`; "": it is in `data`.
    data: what `by_value.dumps` made of it.
  """

  name: str
  spec: str = ""
  data: bytes = b""


@dataclasses.dataclass(frozen=True)
class Signature:
  """What a function takes.

  Attributes:
    parameters: the names that it takes by keyword.
    required: those of them that have no default.
    takes_any: whether it takes any other keyword too.
    is_async: whether it is a coroutine function.
  """

  parameters: tuple[str, ...]
  required: tuple[str, ...]
  takes_any: bool
  is_async: bool


def given(function: Callable[..., Any], name: str = "") -> Function:
  """Returns a function of this process for others; see `by_value.dumps`."""
  name = name or getattr(function, "__name__", type(function).__name__)
  return Function(name, data=by_value.dumps(function))


def find(function: Function) -> Callable[..., Any]:
  """Returns a function, after importing what it lies in.

  Raises:
    ValueError: there is no such file, module or function; one line.
  """
  if function.data:
    return by_value.loads(function.data)
  found = named.find(function.spec)
  if not callable(found):
    raise ValueError(f"{function.spec} is no function or class")
  return found


def signature(function: Callable[..., Any]) -> Signature:
  """Returns what a function takes by keyword.

  Raises:
    ValueError: Python cannot tell, or it has parameters that have no keyword.
  """
  parameters = inspect.signature(function).parameters.values()
  by_keyword = [p for p in parameters if p.kind in (1, 3)]
  only_positional = [p.name for p in parameters if p.kind == 0]
  if only_positional:
    raise ValueError(
      f"parameter {only_positional[0]!r} can only be given by position: "
      "expected parameters with names"
    )
  call = getattr(function, "__call__", None)  # noqa: B004 - of an object.
  return Signature(
    tuple(p.name for p in by_keyword),
    tuple(p.name for p in by_keyword if p.default is p.empty),
    any(p.kind == 4 for p in parameters),
    inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call),
  )
