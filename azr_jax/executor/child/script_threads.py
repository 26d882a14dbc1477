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


def _start(thread):
  """Replaces `Thread.start`; runs the thread before it returns."""
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


def _join(thread, timeout=None):
  if not thread._started.is_set():
    raise RuntimeError("cannot join thread before it is started")


def _is_alive(thread):
  return False


class _Loop(asyncio.BaseEventLoop):
  """An event loop that serves only timers."""

  def __init__(self):
    super().__init__()
    self._selector = self

  def select(self, timeout):
    """Waits for the timeout; no descriptor is ever ready."""
    # Without a timer, the loop waits for another thread, so it waits forever.
    time.sleep(timeout if timeout is not None else threading.TIMEOUT_MAX)
    return ()

  def _process_events(self, events):
    del events

  def _write_to_self(self):
    return None


class _Executor(concurrent.futures.Executor):
  """A thread or process pool that runs calls immediately."""

  def __init__(
    self,
    max_workers=None,
    mp_context=None,
    initializer=None,
    initargs=(),
    **options,
  ):
    self._max_workers = max_workers or 1
    self._is_shut_down = False
    if callable(initializer):
      initializer(*initargs)

  def submit(self, fn, /, *args, **kwargs):
    """Calls a function and returns a completed future."""
    if self._is_shut_down:
      raise RuntimeError("cannot schedule new futures after shutdown")
    future = concurrent.futures.Future()
    future.set_running_or_notify_cancel()
    try:
      future.set_result(fn(*args, **kwargs))
    except Exception as error:  # noqa: BLE001 - becomes the future's.
      future.set_exception(error)
    return future

  def shutdown(self, wait=True, *, cancel_futures=False):
    """Refuses further calls."""
    self._is_shut_down = True


class _Result:
  """Replaces `multiprocessing.pool.AsyncResult`."""

  def __init__(self, future):
    self._future = future

  def get(self, timeout=None):
    return self._future.result()

  def wait(self, timeout=None):
    return None

  def ready(self):
    return True

  def successful(self):
    return self._future.exception() is None


class _Pool:
  """A `multiprocessing.Pool` without processes."""

  def __init__(self, processes=None, initializer=None, initargs=(), *_, **__):
    self._executor = _Executor(processes, None, initializer, initargs)

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    self.terminate()

  def apply_async(
    self, func, args=(), kwds=None, callback=None, error_callback=None
  ):
    future = self._executor.submit(func, *args, **(kwds or {}))
    error = future.exception()
    if error is None and callback:
      callback(future.result())
    if error is not None and error_callback:
      error_callback(error)
    return _Result(future)

  def apply(self, func, args=(), kwds=None):
    return self.apply_async(func, args, kwds).get()

  def imap(self, func, iterable, chunksize=1):
    return map(func, iterable)

  imap_unordered = imap

  def map(self, func, iterable, chunksize=None):
    return self.map_async(func, iterable).get()

  def map_async(self, func, iterable, chunksize=None, *callbacks):
    return self.starmap_async(func, zip(iterable), chunksize, *callbacks)

  def starmap(self, func, iterable, chunksize=None):
    return self.starmap_async(func, iterable).get()

  def starmap_async(self, func, iterable, chunksize=None, *callbacks):
    return self.apply_async(
      lambda: [func(*values) for values in iterable], (), None, *callbacks
    )

  def close(self):
    self._executor.shutdown()

  def terminate(self):
    self._executor.shutdown()

  def join(self):
    return None


def _context(method=None):
  """Replaces `multiprocessing.get_context`."""
  return multiprocessing


_POOLS = {"ThreadPoolExecutor": _Executor, "ProcessPoolExecutor": _Executor}
_DUMMY = multiprocessing.dummy
# Replacements for functions that the sandbox denies.
REPLACED = [
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
