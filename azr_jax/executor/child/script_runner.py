"""Runs a script as `python run.py` would, in a child of a zygote.

A zygote loads this module as the library `script_runner` (`libraries.py`). It
is trusted, but nothing depends on that: a script that patches it can only lie
about its own output.

A script finds the environment of a normal process, as far as the sandbox
allows:

| the script uses | it gets |
| --- | --- |
| the standard library | all modules (`memory_imports.py`) |
| `open`, `pathlib`, `os.remove` ... | in-memory files (`script_files.py`) |
| `input` | an empty input: EOFError |
| threads, process pools | calls that run immediately (`script_threads.py`) |
| `time.sleep` | a wait on a lock |
| `random`, `secrets`, `uuid` | the same numbers in every run |
| sockets, programs, signals | errors |
"""

import builtins
import importlib
import io
import linecache
import os
import random
import sys
import threading
import time
import traceback
import types
from typing import Any

import memory_imports
import script_files
import script_threads

# Modules that scripts often import, loaded in advance to save scripts the time.
MODULES = (
  "argparse ast asyncio bz2 concurrent.futures csv fnmatch glob gzip inspect "
  "io logging lzma os pathlib pickle platform secrets shutil signal sqlite3 "
  "subprocess sys tempfile threading timeit unittest urllib.parse uuid zipfile"
).split()
# Packages that scripts may import if they are loaded.
PACKAGES = (
  "numpy sympy mpmath scipy networkx pandas dateutil pytz tzdata"
).split()
# Characters kept from the start of a stream, and as many from its end.
KEPT_CHARS = 8000
_MAX_ASCII = 24_000  # The limit on a stream's kept text, in escaped characters.
_NAME = "run.py"
_HIDDEN = "<sandbox>"  # The file name of our functions in tracebacks.


def warm_up() -> None:
  """Loads what scripts may import; runs after all other libraries' warm-ups."""
  for name in MODULES:
    try:
      importlib.import_module(name)
    except ImportError:  # This Python was built without it.
      continue
  for script in ("print(1)", "1 / 0", "import random"):
    _run(script, OutputStream(), OutputStream())
  memory_imports.install(PACKAGES)
  for module in (script_files, script_threads, memory_imports):
    _hide_path(module)


def _hide_path(module: types.ModuleType) -> None:
  """Hides a module's installation path from tracebacks."""
  for value in list(vars(module).values()):
    members = vars(value).values() if isinstance(value, type) else (value,)
    for function in members:
      code = getattr(function, "__code__", None)
      if code is not None and code.co_filename == module.__file__:
        function.__code__ = _renamed(code)


def _renamed(code: types.CodeType) -> types.CodeType:
  constants = [
    _renamed(constant) if isinstance(constant, types.CodeType) else constant
    for constant in code.co_consts
  ]
  return code.replace(co_filename=_HIDDEN, co_consts=tuple(constants))


def _sleep(seconds: float) -> None:
  """Replaces `time.sleep`: the sandbox allows waiting for a lock."""
  threading.Event().wait(seconds)


_BYTES = random.Random(0).randbytes
_REPLACED = [
  (time, {"sleep": _sleep}),
  (os, {"urandom": _BYTES}),
  (random, {"_urandom": _BYTES}),
]


class OutputStream(io.TextIOBase):
  """An output stream that keeps the start and the end of the text."""

  encoding = "utf-8"

  def __init__(self) -> None:
    self._head, self._tail, self._total = "", "", 0
    self.buffer = _Bytes(self)

  def writable(self) -> bool:
    """Returns True."""
    return True

  def reconfigure(self, **options: object) -> None:
    """Accepts and ignores the options of a real stream."""

  def write(self, text: str) -> int:
    """Appends text and returns its length."""
    if type(text) is not str:
      raise TypeError(f"write() takes a string, not {type(text).__name__}")
    self._total += len(text)
    free = KEPT_CHARS - len(self._head)
    if free:
      self._head += text[:free]
    # The tail never repeats characters of the head.
    self._tail += text[free:][-KEPT_CHARS:]
    if len(self._tail) > 9 * KEPT_CHARS:  # Trim rarely: it copies the tail.
      self._tail = self._tail[-KEPT_CHARS:]
    return len(text)

  def kept(self) -> tuple[str, int, str]:
    """Returns (head, number of omitted characters, tail)."""
    head, tail = self._head, self._tail[-KEPT_CHARS:]
    if not tail and len(ascii(head)) > _MAX_ASCII:
      head, tail = head[: len(head) // 2], head[len(head) // 2 :]
    while len(ascii(head)) + len(ascii(tail)) > _MAX_ASCII:
      head, tail = head[: len(head) * 3 // 4], tail[-(len(tail) * 3 // 4) :]
    return head, self._total - len(head) - len(tail), tail


class _Bytes(io.RawIOBase):
  """A stream's `buffer`, to which a script may write bytes."""

  def __init__(self, stream: OutputStream) -> None:
    self._stream = stream

  def writable(self) -> bool:
    return True

  # Python 3.11 has no type for buffers.
  def write(self, data: Any) -> int:
    self._stream.write(bytes(data).decode("utf-8", "replace"))
    return len(data)


def f(script: str) -> tuple[bool, tuple[str, int, str], tuple[str, int, str]]:
  """Runs a script; returns (whether it failed, output, errors).

  Output and errors have the form that `OutputStream.kept` returns.
  """
  output, errors = OutputStream(), OutputStream()
  sys.stdin = io.StringIO()
  sys.argv = [_NAME]
  for module, replacements in (
    *script_files.REPLACED,
    *script_threads.REPLACED,
    *_REPLACED,
  ):
    for name, value in replacements.items():
      setattr(module, name, value)
  random.seed(0)  # After a resume, the script must see the same numbers.
  failed = _run(script, output, errors)
  return failed, output.kept(), errors.kept()


def _run(script: str, output: OutputStream, errors: OutputStream) -> bool:
  """Runs a script's source; returns whether it failed."""
  before = sys.stdout, sys.stderr
  sys.stdout, sys.stderr = output, errors
  lines = (script + "\n").splitlines(keepends=True)
  linecache.cache[_NAME] = len(script), None, lines, _NAME
  module = sys.modules["__main__"] = types.ModuleType("__main__")
  scope = vars(module)
  scope |= {"__builtins__": builtins, "__file__": _NAME}
  scope |= {"exit": sys.exit, "quit": sys.exit}
  try:
    exec(compile(script, _NAME, "exec", 0, True), scope)
  except SystemExit as error:
    if isinstance(error.code, str):
      errors.write(error.code)
    return error.code not in (None, 0)
  except BaseException as error:  # noqa: BLE001 - a script may raise any.
    errors.write(_report(error))
    return True
  finally:
    sys.stdout, sys.stderr = before
  return False


def _report(error: BaseException) -> str:
  """Formats the traceback as Python does, without this module's frames."""
  steps = error.__traceback__
  while steps is not None and steps.tb_frame.f_code.co_filename != _NAME:
    steps = steps.tb_next
  return "".join(traceback.format_exception(type(error), error, steps))
