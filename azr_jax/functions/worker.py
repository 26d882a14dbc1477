"""The program of a worker process. It calls a user's functions on request.

The trainer starts it by exec, below a keeper (`keeper.py`). Requests are
pickles on standard input, which only the trainer writes. Replies are JSON, not
pickles, because the trainer reads them and functions handle text from a model.
They go to the original standard output; what functions print goes to standard
error.

The process ends when its standard input closes, as it does when the trainer
dies, even while a function runs.
"""

import asyncio
import json
import os
import pickle
import queue
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

from azr_jax.config import named
from azr_jax.functions import spec as spec_lib

LENGTH = struct.Struct(">I")
RAISED, WRONG_TYPE = "raised", "wrong_type"
_SHOWN_CHARS = 200
# Limit on integers in replies. Python refuses to convert more than 4,300
# digits, unless a function has lifted that limit in its process.
_MAX_INTEGER = 10**4000


def frame(payload: bytes) -> bytes:
  """Prefixes a message with its length."""
  return LENGTH.pack(len(payload)) + payload


def _read_frame(file: BinaryIO) -> bytes | None:
  head = file.read(LENGTH.size)
  if len(head) < LENGTH.size:
    return None
  payload = file.read(*LENGTH.unpack(head))
  return payload


class _Replies:
  """Writes replies from several threads."""

  def __init__(self, file: BinaryIO):
    self._file, self._lock = file, threading.Lock()

  def write(self, reply: Mapping[str, Any]) -> None:
    with self._lock:
      self._file.write(frame(json.dumps(reply).encode()))
      self._file.flush()


def plain(value: Any) -> Any:
  """Converts a value to numbers, strings, lists and dictionaries.

  Scalars and arrays of NumPy and other libraries become numbers and lists.
  Fractions, decimals and other real numbers become floats.

  Raises:
    TypeError: part of the value is something else.
    ValueError: an integer has more than 4,000 digits.
    OverflowError: a fraction is too large for a float.
  """
  if value is None or isinstance(value, bool | float | str):
    return value
  if isinstance(value, int):
    if abs(value) >= _MAX_INTEGER:
      raise ValueError("an integer has more than 4000 digits")
    return value
  if isinstance(value, Mapping):
    return {str(name): plain(item) for name, item in value.items()}
  if isinstance(value, list | tuple):
    return [plain(item) for item in value]
  if hasattr(value, "tolist"):
    made = value.tolist()
    if type(made) is not type(value):  # NumPy's longdouble returns itself.
      return plain(made)
  if hasattr(value, "__float__"):
    return float(value)
  raise TypeError(f"returned {value!r:.80} of type {type(value).__name__}")


def _failure(error: BaseException) -> dict[str, str]:
  text = " ".join(str(error).split())[:_SHOWN_CHARS]
  colon = ": " if text else ""
  where = named.last_line(error)
  message = f"{type(error).__name__}{colon}{text}{where}"
  return {"failure": RAISED, "message": message}


def _result(value: Any) -> dict[str, Any]:
  try:
    return {"value": plain(value)}
  except (TypeError, ValueError, OverflowError, RecursionError) as error:
    return {"failure": WRONG_TYPE, "message": str(error)[:_SHOWN_CHARS]}


class _Calls:
  """Calls functions: coroutines concurrently, others one at a time."""

  def __init__(
    self, functions: Sequence[Callable[..., Any]], replies: _Replies
  ):
    self._functions, self._replies = functions, replies
    self._loop: asyncio.AbstractEventLoop | None = None

  def call(self, number: int, index: int, arguments: dict[str, Any]) -> None:
    """Calls a function, and replies when it returns."""
    begun = time.monotonic()
    try:
      value = self._functions[index](**arguments)
      if asyncio.iscoroutine(value):
        self._spawn(number, value, begun)
        return
      reply = _result(value)
    except BaseException as error:  # noqa: BLE001 - SystemExit among them.
      reply = _failure(error)
    self._reply(number, reply, begun)

  def _reply(self, number: int, reply: dict[str, Any], begun: float) -> None:
    seconds = time.monotonic() - begun
    self._replies.write({"number": number, "seconds": seconds, **reply})

  def _spawn(self, number: int, coroutine: Any, begun: float) -> None:
    if self._loop is None:
      self._loop = asyncio.new_event_loop()
      threading.Thread(target=self._loop.run_forever, daemon=True).start()

    async def run() -> None:
      try:
        reply = _result(await coroutine)
      except BaseException as error:  # noqa: BLE001 - SystemExit too.
        reply = _failure(error)
      self._reply(number, reply, begun)

    asyncio.run_coroutine_threadsafe(run(), self._loop)


def _load(
  functions: Sequence[spec_lib.Function],
) -> tuple[list[Callable[..., Any]], dict[str, Any]]:
  """Loads functions; returns them and the reply with their signatures."""
  found, signatures = [], []
  for function in functions:
    try:
      found.append(spec_lib.find(function))
      if hasattr(found[-1], "bind"):
        found[-1].bind(os.environ)
      taken = spec_lib.signature(found[-1])
    except Exception as error:  # noqa: BLE001 - it becomes the reply.
      text = str(error) if isinstance(error, ValueError) else repr(error)
      return [], {"error": f"{function.name}: {text}"}
    signatures.append(vars(taken))
  return found, {"signatures": signatures, "pid": os.getpid()}


def main() -> None:
  """Serves requests until standard input closes."""
  requests = os.fdopen(os.dup(0), "rb")
  replies = _Replies(os.fdopen(os.dup(1), "wb"))
  os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
  os.dup2(2, 1)
  first = _read_frame(requests)
  if first is None:
    return
  functions, paths = pickle.loads(first)
  sys.path[:0] = [path for path in paths if path not in sys.path]
  found, reply = _load(functions)
  replies.write(reply)
  if not found:
    return
  calls: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()

  def read() -> None:
    while (payload := _read_frame(requests)) is not None:
      calls.put(pickle.loads(payload))
    os._exit(0)

  threading.Thread(target=read, daemon=True).start()
  served = _Calls(found, replies)
  while True:
    served.call(*calls.get())
