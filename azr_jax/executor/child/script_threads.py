"""Threads, process pools and event loops, for scripts.

The sandbox allows only one thread. So each thread, process or pool task that a
script starts runs immediately and to completion in the script's own process.
Results and exceptions are the same as on a machine with one core, with two
differences: a thread that waits for something its starter does later waits
forever, and changes made in a `Process` are visible to its starter. An event
loop serves timers, but no descriptors.
"""

import asyncio
import concurrent.futures
import concurrent.futures.process
import concurrent.futures.thread
import multiprocessing
import multiprocessing.dummy
import multiprocessing.pool
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any


def _start(thread: Any) -> None:
  """Replaces `Thread.start`; runs the thread before it returns."""
  # `thread` is a Thread, whose declared type lacks the private attributes.
  if thread._started.is_set():
    raise RuntimeError("threads can only be started once")
  thread._started.set()
  thread._ident = threading.get_ident()
  try:
    thread.run()
  except SystemExit:
    pass
  except BaseException:  # noqa: BLE001 - an exception ends only its thread.
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), thread)))


def _join(thread: Any, timeout: float | None = None) -> None:
  if not thread._started.is_set():
    raise RuntimeError("cannot join thread before it is started")


def _is_alive(thread: threading.Thread) -> bool:
  return False


class _Loop(asyncio.BaseEventLoop):
  """An event loop that serves only timers."""

  def __init__(self) -> None:
    super().__init__()
    self._selector = self

  def select(self, timeout: float | None) -> tuple[()]:
    """Waits for the timeout; no descriptor is ever ready."""
    # Without a timer, the loop waits for another thread, so it waits forever.
    time.sleep(timeout if timeout is not None else threading.TIMEOUT_MAX)
    return ()

  def _process_events(self, events: object) -> None:
    del events

  def _write_to_self(self) -> None:
    return None


class _Executor(concurrent.futures.Executor):
  """A thread or process pool that runs calls immediately."""

  def __init__(
    self,
    max_workers: int | None = None,
    mp_context: object = None,
    initializer: Callable[..., object] | None = None,
    initargs: Iterable[Any] = (),
    **options: object,
  ) -> None:
    self._max_workers = max_workers or 1
    self._is_shut_down = False
    if callable(initializer):
      initializer(*initargs)

  def submit(
    self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
  ) -> Future[Any]:
    """Calls a function and returns a completed future."""
    if self._is_shut_down:
      raise RuntimeError("cannot schedule new futures after shutdown")
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    try:
      future.set_result(fn(*args, **kwargs))
    except Exception as error:  # noqa: BLE001 - becomes the future's.
      future.set_exception(error)
    return future

  def shutdown(
    self, wait: bool = True, *, cancel_futures: bool = False
  ) -> None:
    """Refuses further calls."""
    self._is_shut_down = True


class _Result:
  """Replaces `multiprocessing.pool.AsyncResult`."""

  def __init__(self, future: Future[Any]) -> None:
    self._future = future

  def get(self, timeout: float | None = None) -> Any:
    return self._future.result()

  def wait(self, timeout: float | None = None) -> None:
    return None

  def ready(self) -> bool:
    return True

  def successful(self) -> bool:
    return self._future.exception() is None


class _Pool:
  """A `multiprocessing.Pool` without processes."""

  def __init__(
    self,
    processes: int | None = None,
    initializer: Callable[..., object] | None = None,
    initargs: Iterable[Any] = (),
    *_: object,
    **__: object,
  ) -> None:
    self._executor = _Executor(processes, None, initializer, initargs)

  def __enter__(self) -> "_Pool":
    return self

  def __exit__(self, *exception: object) -> None:
    self.terminate()

  def apply_async(
    self,
    func: Callable[..., Any],
    args: Iterable[Any] = (),
    kwds: dict[str, Any] | None = None,
    callback: Callable[[Any], object] | None = None,
    error_callback: Callable[[BaseException], object] | None = None,
  ) -> _Result:
    future = self._executor.submit(func, *args, **(kwds or {}))
    error = future.exception()
    if error is None and callback:
      callback(future.result())
    if error is not None and error_callback:
      error_callback(error)
    return _Result(future)

  def apply(
    self,
    func: Callable[..., Any],
    args: Iterable[Any] = (),
    kwds: dict[str, Any] | None = None,
  ) -> Any:
    return self.apply_async(func, args, kwds).get()

  def imap(
    self,
    func: Callable[[Any], Any],
    iterable: Iterable[Any],
    chunksize: int = 1,
  ) -> Iterator[Any]:
    return map(func, iterable)

  imap_unordered = imap

  def map(
    self,
    func: Callable[[Any], Any],
    iterable: Iterable[Any],
    chunksize: int | None = None,
  ) -> list[Any]:
    return self.map_async(func, iterable).get()

  def map_async(
    self,
    func: Callable[[Any], Any],
    iterable: Iterable[Any],
    chunksize: int | None = None,
    *callbacks: Callable[[Any], object] | None,
  ) -> _Result:
    return self.starmap_async(func, zip(iterable), chunksize, *callbacks)

  def starmap(
    self,
    func: Callable[..., Any],
    iterable: Iterable[Iterable[Any]],
    chunksize: int | None = None,
  ) -> list[Any]:
    return self.starmap_async(func, iterable).get()

  def starmap_async(
    self,
    func: Callable[..., Any],
    iterable: Iterable[Iterable[Any]],
    chunksize: int | None = None,
    *callbacks: Callable[[Any], object] | None,
  ) -> _Result:
    return self.apply_async(
      lambda: [func(*values) for values in iterable], (), None, *callbacks
    )

  def close(self) -> None:
    self._executor.shutdown()

  def terminate(self) -> None:
    self._executor.shutdown()

  def join(self) -> None:
    return None


def _context(method: str | None = None) -> types.ModuleType:
  """Replaces `multiprocessing.get_context`."""
  return multiprocessing


_POOLS: dict[str, object] = {
  "ThreadPoolExecutor": _Executor,
  "ProcessPoolExecutor": _Executor,
}
_DUMMY = multiprocessing.dummy
# Replacements for functions that the sandbox denies.
REPLACED: list[tuple[object, dict[str, object]]] = [
  (threading.Thread, {"start": _start, "join": _join, "is_alive": _is_alive}),
  (concurrent.futures, _POOLS),
  (concurrent.futures.thread, _POOLS),
  (concurrent.futures.process, _POOLS),
  (
    concurrent.futures,
    {"as_completed": lambda fs, timeout=None: iter(list(fs))},
  ),
  (asyncio, {"new_event_loop": _Loop}),
  (asyncio.events, {"new_event_loop": _Loop}),
  (os, {"cpu_count": lambda: 1}),
  (
    multiprocessing,
    {
      name: getattr(_DUMMY, name)
      for name in (*_DUMMY.__all__, "Array", "Value")
    },
  ),
  (
    multiprocessing,
    {
      "Pool": _Pool,
      "cpu_count": lambda: 1,
      "get_context": _context,
      "set_start_method": lambda method, force=False: None,
    },
  ),
  (multiprocessing.pool, {"Pool": _Pool, "ThreadPool": _Pool}),
]
