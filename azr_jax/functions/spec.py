"""User functions, in the form that worker processes load."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from azr_jax.config import named
from azr_jax.functions import by_value


@dataclasses.dataclass(frozen=True)
class Function:
  """A function to send to a worker process.

  Attributes:
    name: the name in metrics and messages.
    spec: a spec as in `config/named.py`; "" if the function is in `data`.
    data: the pickle from `by_value.dumps`.
  """

  name: str
  spec: str = ""
  data: bytes = b""


@dataclasses.dataclass(frozen=True)
class Signature:
  """The keyword parameters of a function.

  Attributes:
    parameters: the names of the parameters.
    required: the parameters without a default.
    takes_any: whether the function also takes any other keyword.
    is_async: whether it is a coroutine function.
  """

  parameters: tuple[str, ...]
  required: tuple[str, ...]
  takes_any: bool
  is_async: bool


def given(function: Callable[..., Any], name: str = "") -> Function:
  """Wraps a function of this process for workers; see `by_value.dumps`."""
  name = name or getattr(function, "__name__", type(function).__name__)
  return Function(name, data=by_value.dumps(function))


def find(function: Function) -> Callable[..., Any]:
  """Imports the module or file of a function, and returns the function.

  Raises:
    ValueError: no such file, module or function. The message is one line.
  """
  if function.data:
    return by_value.loads(function.data)
  found = named.find(function.spec)
  if not callable(found):
    raise ValueError(f"{function.spec} is not a function or class")
  return found


def signature(function: Callable[..., Any]) -> Signature:
  """Returns the keyword parameters of a function.

  Raises:
    ValueError: Python cannot tell, or a parameter is positional-only.
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
