"""Says how a function of a user is found, and finds it.

| spec | the function |
| --- | --- |
| `FILE.py:NAME` | of a file, whose folder is in the import path |
| `MODULE:NAME` | of a module that can be imported from the working directory |
"""

import dataclasses
import importlib
import importlib.util
import inspect
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

from azr_jax.functions import by_value


@dataclasses.dataclass(frozen=True)
class Function:
  """A function as a worker process gets it.

  Attributes:
    name: for metrics and messages.
    spec: one of the module's table; "": it is in `data`.
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


def split(spec: str) -> tuple[str, str]:
  """Returns file or module, and name, of a spec.

  Raises:
    ValueError: it has another form.
  """
  module, colon, name = spec.rpartition(":")
  is_place = bool(module.strip()) and "*" not in module
  if not colon or not is_place or not name.isidentifier():
    raise ValueError(f"{spec!r}: expected FILE.py:NAME or MODULE:NAME")
  return module, name


def find(function: Function) -> Callable[..., Any]:
  """Returns a function, after importing what it lies in.

  Raises:
    ValueError: there is no such file, module or function; one line.
  """
  if function.data:
    return by_value.loads(function.data)
  where, name = split(function.spec)
  try:
    module = _import(where)
  except Exception as error:
    place = last_line(error)
    raise ValueError(
      f"{where} cannot be imported: {type(error).__name__}: "
      f"{' '.join(str(error).split())[:200]}{place}"
    ) from error
  found = getattr(module, name, None)
  if not callable(found):
    own = [
      key
      for key, value in vars(module).items()
      if getattr(value, "__module__", "") == module.__name__ and callable(value)
    ]
    raise ValueError(
      f"{where} has no function or class {name!r}: expected one of {own}"
    )
  return found


def _import(where: str) -> types.ModuleType:
  """Imports a module by name or by the path of its file."""
  if not where.endswith(".py"):
    return importlib.import_module(where)
  path = pathlib.Path(where).expanduser().resolve()
  if not path.is_file():
    raise FileNotFoundError(f"there is no file {path}")
  if str(path.parent) not in sys.path:
    sys.path.insert(0, str(path.parent))
  # Two files may have one name, and a file the name of a library.
  name = f"_of_user_{path.stem}_{abs(hash(str(path)))}"
  if name not in sys.modules:
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
      module_spec.loader.exec_module(module)
    except BaseException:
      del sys.modules[name]
      raise
  return sys.modules[name]


def last_line(error: BaseException) -> str:
  """Returns where an error was raised, as ` (FILE:LINE)`; "": not in a file."""
  trace = error.__traceback__
  if trace is None:
    return ""
  while trace.tb_next is not None:
    trace = trace.tb_next
  file = pathlib.Path(trace.tb_frame.f_code.co_filename).name
  return f" ({file}:{trace.tb_lineno})"


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
