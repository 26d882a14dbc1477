"""Pickles functions of notebooks and closures by their code, not by their name.

A pickle names a function by its module, which a worker process can import. The
functions and classes of `__main__`, lambdas and functions inside of functions
have no such name. They are taken apart: code, defaults, the cells of the
closure, and those global names that the code reads. The globals that are
modules stay names.

A worker process is started by exec. A fork would need none of this, but JAX has
threads: a fork of a process with threads may inherit a lock that nobody
releases, and shares the devices of its parent.
"""

import builtins
import dataclasses
import dis
import enum
import importlib
import importlib.util
import io
import marshal
import pickle
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_MAIN = "__main__"
# Attributes that `type` or `ABCMeta` makes for every class by itself.
_OF_EVERY_CLASS = ("__dict__", "__weakref__", "_abc_impl")
# Constants of `dataclasses`, which compares them by identity.
_CONSTANTS = {
  id(value): name
  for name, value in vars(dataclasses).items()
  if name in ("MISSING", "KW_ONLY") or name.startswith("_FIELD")
}


def dumps(value: Any) -> bytes:
  """Returns a pickle that another process with the same Python can load.

  Raises:
    TypeError: something that the function needs cannot be pickled, such as an
      open file or a lock; the message names the function.
  """
  file = io.BytesIO()
  try:
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
  except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
    name = getattr(value, "__name__", repr(value)[:80])
    line = " ".join(str(error).split())[:200]
    raise TypeError(
      f"{name} cannot be sent to another process ({line}): expected a function "
      "that needs no open files, locks or devices; it can make them in its "
      "first call, or lie in a file of its own, given as FILE.py:NAME"
    ) from error
  return file.getvalue()


def loads(data: bytes) -> Any:
  """Returns what `dumps` pickled; only for data of this user's own process."""
  return pickle.loads(data)


def is_importable(value: Any) -> bool:
  """Returns whether another process finds a function or class by its name."""
  module, path = value.__module__, value.__qualname__
  if module in (None, _MAIN) or "<" in path:
    return False
  found = sys.modules.get(module)
  for name in path.split("."):
    found = getattr(found, name, None)
  if found is not value:
    return False
  try:
    return importlib.util.find_spec(module.partition(".")[0]) is not None
  except (ValueError, ImportError):
    return module in sys.builtin_module_names


class _Pickler(pickle.Pickler):
  """Pickles functions, classes and modules in ways that `pickle` does not."""

  def reducer_override(self, obj: Any) -> Any:
    """Returns how to make an object again; `NotImplemented`: as usual."""
    if id(obj) in _CONSTANTS:
      return _CONSTANTS[id(obj)]
    if isinstance(obj, types.ModuleType):
      return importlib.import_module, (obj.__name__,)
    if isinstance(obj, types.MappingProxyType):
      return _proxy, (dict(obj),)
    if isinstance(obj, types.FunctionType) and not is_importable(obj):
      return _reduce_function(obj)
    if isinstance(obj, type) and obj.__module__ == _MAIN:
      return _reduce_class(obj)
    return NotImplemented


def _proxy(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
  return types.MappingProxyType(mapping)


def _reduce_function(function: types.FunctionType) -> tuple[Any, ...]:
  """Takes a function apart: an empty one, and what fills it.

  The two parts let a function refer to itself.
  """
  cells = function.__closure__ or ()
  known = _globals_of(function)
  state = {
    "modules": _submodules(function, known),
    "globals": known,
    "cells": [_content(cell) for cell in cells],
    "attributes": {
      "__defaults__": function.__defaults__,
      "__kwdefaults__": function.__kwdefaults__,
      "__qualname__": function.__qualname__,
      "__doc__": function.__doc__,
    },
    "dict": dict(function.__dict__),
  }
  code = marshal.dumps(function.__code__)
  arguments = code, function.__name__, len(cells)
  return _empty_function, arguments, state, None, None, _fill_function


def _content(cell: types.CellType) -> tuple[Any, ...]:
  """Returns what a cell holds, in a tuple; (): it is still empty."""
  try:
    return (cell.cell_contents,)
  except ValueError:
    return ()


def _globals_of(function: types.FunctionType) -> dict[str, Any]:
  """Returns the global names that a function and those inside of it read."""
  names = {name for code in _codes(function.__code__) for name in _read(code)}
  known = function.__globals__
  return {name: known[name] for name in sorted(names) if name in known}


def _submodules(
  function: types.FunctionType, known: Mapping[str, Any]
) -> list[str]:
  """Returns the loaded modules inside of packages that a function may read.

  `xml.etree` is an attribute of `xml` only after somebody has imported it.
  """
  names = {n for code in _codes(function.__code__) for n in code.co_names}
  packages = tuple(
    f"{value.__name__}."
    for value in known.values()
    if isinstance(value, types.ModuleType)
  )
  return [
    name
    for name in sorted(sys.modules)
    if packages
    and name.startswith(packages)
    and names.issuperset(name.split(".")[1:])
  ]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
  yield code
  for constant in code.co_consts:
    if isinstance(constant, types.CodeType):
      yield from _codes(constant)


def _read(code: types.CodeType) -> Iterator[str]:
  """Yields the global names that instructions of a code read or delete."""
  for instruction in dis.get_instructions(code):
    if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
      yield str(instruction.argval)


def _empty_function(code: bytes, name: str, cells: int) -> types.FunctionType:
  closure = tuple(types.CellType() for _ in range(cells))
  known = {"__builtins__": builtins, "__name__": _MAIN}
  return types.FunctionType(marshal.loads(code), known, name, None, closure)


def _fill_function(
  function: types.FunctionType, state: Mapping[str, Any]
) -> None:
  for name in state["modules"]:
    importlib.import_module(name)
  function.__globals__.update(state["globals"])
  for cell, content in zip(
    function.__closure__ or (), state["cells"], strict=True
  ):
    if content:
      (cell.cell_contents,) = content
  for name, value in state["attributes"].items():
    setattr(function, name, value)
  function.__dict__.update(state["dict"])


def _reduce_class(cls: type) -> tuple[Any, ...]:
  """Takes a class apart: one without attributes, and its attributes."""
  if issubclass(cls, enum.Enum):
    raise TypeError(f"{cls.__name__} is an enumeration of a notebook")
  attributes = {
    name: value
    for name, value in vars(cls).items()
    if name not in _OF_EVERY_CLASS
    and not isinstance(value, types.MemberDescriptorType)
  }
  arguments = (
    type(cls),
    cls.__name__,
    cls.__bases__,
    attributes.pop("__slots__", None),
  )
  return _empty_class, arguments, attributes, None, None, _fill_class


def _empty_class(
  make: Callable[..., type], name: str, bases: tuple[type, ...], slots: Any
) -> type:
  namespace = {"__module__": _MAIN}
  return make(
    name,
    bases,
    namespace if slots is None else namespace | {"__slots__": slots},
  )


def _fill_class(cls: type, attributes: Mapping[str, Any]) -> None:
  for name, value in attributes.items():
    setattr(cls, name, value)
