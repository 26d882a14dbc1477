"""Shifts a child's clocks, so that no two runs of a job agree on the time.

Two runs read different seconds anyway, but the same weekday, hour or year
unless their clocks are far apart. So in run n of a job, counted from 0, the
clocks are n steps ahead: a different year, month, day of the month, weekday,
hour, minute and second (`clock_steps.py`). Differences between two readings do
not change. The first run, with a shift of 0, has the same replacements, and so
does a job's only run if the job has rules. So all runs look alike.

The functions of `time`, and `os.times`, are replaced in every module that has
them; `now` and `utcnow` are replaced in the type `datetime` itself. So a
program finds no original by name. The C library's clocks are not changed.
"""

import ctypes
import datetime
import gc
import os
import time
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_SECONDS = (
  "time monotonic perf_counter process_time thread_time clock_gettime"
).split()
# Functions of a time, and the position of the argument that defaults to now.
_OF_NOW = {"gmtime": 0, "localtime": 0, "ctime": 0}
_OF_NOW_TUPLE = {"asctime": 0, "strftime": 1}
_REAL_TIME, _REAL_LOCAL_TIME = time.time, time.localtime
_REAL_TIMES = os.times
_type_changed = ctypes.pythonapi.PyType_Modified
_type_changed.argtypes = [ctypes.py_object]
_type_changed.restype = None
_shift_s = 0
# (namespace, name, replacement)
_PLACES: list[tuple[dict[str, Any], str, object]] = []


class _Function:
  """A callable that, like a C function, does not bind as a method."""

  __slots__ = ("_call",)

  def __init__(self, call: Callable[..., object]) -> None:
    self._call = call

  def __call__(self, *arguments: object) -> object:
    return self._call(*arguments)


def prepare(namespaces: Iterable[dict[str, Any]]) -> None:
  """Finds the clocks in modules' globals; called once, in the zygote."""
  replacements = {
    id(getattr(time, name)): replacement
    for name, replacement in _replacements()
    if hasattr(time, name)
  }
  replacements[id(os.times)] = _Function(_process_times)
  for namespace in namespaces:
    for name, value in namespace.items():
      if type(value) is types.BuiltinFunctionType and id(value) in replacements:
        _PLACES.append((namespace, name, replacements[id(value)]))
  methods = gc.get_referents(vars(datetime.datetime))[0]
  for name in ("now", "utcnow"):
    _PLACES.append((methods, name, classmethod(_later(methods[name]))))


def shift(seconds: int) -> None:
  """Sets this process's clocks ahead by some seconds."""
  global _shift_s
  _shift_s = seconds
  for namespace, name, replacement in _PLACES:
    namespace[name] = replacement
  _type_changed(datetime.datetime)


def _replacements() -> Iterator[tuple[str, _Function]]:
  """Yields the name of each clock in `time` and its replacement."""
  for name in _SECONDS:
    yield name, _Function(_ahead(getattr(time, name), 1))
    yield f"{name}_ns", _Function(_ahead(getattr(time, f"{name}_ns"), 10**9))
  for name, position in _OF_NOW.items():
    yield name, _Function(_of_now(getattr(time, name), position, _now_s))
  for name, position in _OF_NOW_TUPLE.items():
    yield name, _Function(_of_now(getattr(time, name), position, _now_tuple))


def _ahead(clock: Callable[..., float], units: int) -> Callable[..., float]:
  return lambda *arguments: clock(*arguments) + _shift_s * units


def _process_times() -> os.times_result:
  *used, elapsed = _REAL_TIMES()
  return os.times_result((*used, elapsed + _shift_s))


def _now_s() -> float:
  return _REAL_TIME() + _shift_s


def _now_tuple() -> time.struct_time:
  return _REAL_LOCAL_TIME(_now_s())


def _of_now(
  function: Callable[..., object], position: int, now: Callable[[], object]
) -> Callable[..., object]:
  def call(*arguments: object) -> object:
    if len(arguments) == position or arguments[position:] == (None,):
      arguments = (*arguments[:position], now())
    return function(*arguments)

  return call


def _later(
  method: types.ClassMethodDescriptorType,
) -> Callable[..., datetime.datetime]:
  """Returns a class method of `datetime` that returns shifted times."""

  def read(
    kind: type, *arguments: object, **named: object
  ) -> datetime.datetime:
    now = method.__get__(None, kind)(*arguments, **named)
    return now + datetime.timedelta(seconds=_shift_s)

  return read
