"""Calls functions in worker processes, with a time limit per call.

A thread of this process sends calls and receives replies. A worker runs one
call at a time, or up to `concurrency` calls of coroutine functions. A call that
exceeds its time fails and its worker is killed; the next call starts a new one.
Calls that shared the worker are sent again. A worker that exits by itself, or
uses too much memory, is replaced too. Its calls are retried once, each in its
own worker, before they fail.

Time only counts while this process runs: if the machine is suspended, no limit
is used up.
"""

import collections
import dataclasses
import os
import selectors
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from azr_jax.functions import keeper, worker
from azr_jax.functions.process import Closed, Process
from azr_jax.functions.spec import Function, Signature

# The ways a call can fail.
RAISED, WRONG_TYPE = worker.RAISED, worker.WRONG_TYPE
TIMEOUT, DIED, MEMORY = "timeout", "died", "memory"
# Seconds that a user's imports may take.
START_TIMEOUT_S = 300.0
# Attempts of a call whose worker dies.
_ATTEMPTS = 2
# Poll interval in seconds. One iteration counts as at most twice this.
_TICK_S = 0.5


@dataclasses.dataclass(frozen=True)
class CallResult:
  """The result of a call.

  Attributes:
    value: the function's return value, converted by `worker.plain`.
    failure: `RAISED`, `WRONG_TYPE`, `TIMEOUT`, `DIED` or `MEMORY`; "" if the
      function returned.
    message: one line about a failure.
    seconds: the duration of the call.
  """

  value: Any = None
  failure: str = ""
  message: str = ""
  seconds: float = 0.0


@dataclasses.dataclass
class _Call:
  """A waiting or running call.

  Attributes:
    index: the index of the function.
    arguments: the keyword arguments.
    limit_s: the time limit in seconds.
    future: receives the `CallResult`.
    spent_s: the seconds that the call has run.
    losses: how many workers exited by themselves during the call.
  """

  index: int
  arguments: dict[str, Any]
  limit_s: float
  future: "Future[CallResult]"
  spent_s: float = 0.0
  losses: int = 0


class FunctionPool:
  """Functions, and the worker processes that call them. Thread-safe.

  Attributes:
    signatures: the signature of each function.
  """

  def __init__(
    self,
    functions: Sequence[Function],
    workers: int,
    timeout_s: float,
    concurrency: int = 32,
    memory_gib: float = 0.0,
  ):
    """Starts a process and waits until it has loaded the functions.

    Args:
      functions: the functions that can be called.
      workers: the maximum number of processes. They start on demand.
      timeout_s: the default time limit of a call, in seconds.
      concurrency: the maximum number of concurrent coroutine calls per process.
      memory_gib: the limit on resident memory of a process and its children, in
        GiB; 0 for no limit.

    Raises:
      ValueError: a function cannot be found or loaded. The message is one line.
    """
    self._functions, self._timeout_s = list(functions), timeout_s
    self._max, self._concurrency = workers, concurrency
    self._memory_gib = memory_gib
    self._lock = threading.Lock()
    self._closed = False
    self._waiting: collections.deque[_Call] = collections.deque()
    self._numbers = 0
    self._wake_read, self._wake_write = os.pipe()
    os.set_blocking(self._wake_read, False)
    first = Process(self._functions, memory_gib)
    self._processes = [first]
    self.signatures: Sequence[Signature] = self._wait_for_load(first)
    self._thread = threading.Thread(
      target=self._run, daemon=True, name="functions"
    )
    self._thread.start()

  def _wait_for_load(self, process: Process) -> Sequence[Signature]:
    """Waits for a process to load its functions; returns their signatures.

    Raises:
      ValueError: the process reports an error, ends, or is too slow.
    """
    problem = f"not loaded in {START_TIMEOUT_S:g} s"
    left = START_TIMEOUT_S
    with selectors.DefaultSelector() as selector:
      selector.register(process.read_fd, selectors.EVENT_READ)
      while process.signatures is None and left > 0:
        if process.has_unsent():
          process.flush()
        if not selector.select(_TICK_S):
          left -= _TICK_S
          continue
        try:
          problem = _take_load(process, process.receive()) or problem
        except Closed:
          left = 0
          problem = problem if "not loaded" not in problem else "it ended"
    if process.signatures is None:
      if process.end() == keeper.TOO_MUCH:
        problem = self._too_much()
      self._close_pipes()
      names = ", ".join(function.name for function in self._functions)
      raise ValueError(
        problem if ":" in problem else f"functions {names}: {problem}"
      )
    return process.signatures

  def __enter__(self) -> "FunctionPool":
    return self

  def __exit__(self, *exception: object) -> None:
    self.close()

  def submit(
    self, index: int, arguments: dict[str, Any], limit_s: float = 0.0
  ) -> "Future[CallResult]":
    """Queues a call and returns the future of its answer.

    Args:
      index: the index of the function.
      arguments: the keyword arguments, which must be picklable.
      limit_s: the time limit in seconds; 0 uses the pool's.

    Raises:
      RuntimeError: the pool is closed.
    """
    future: Future[CallResult] = Future()
    call = _Call(index, arguments, limit_s or self._timeout_s, future)
    with self._lock:
      if self._closed:
        raise RuntimeError("the pool of functions is closed")
      self._waiting.append(call)
    os.write(self._wake_write, b"x")
    return future

  def processes(self) -> list[int]:
    """Returns the ids of the running processes."""
    return [process.pid for process in self._processes]

  def close(self) -> None:
    """Ends all processes and cancels unfinished calls."""
    with self._lock:
      if self._closed:
        return
      self._closed = True
    os.write(self._wake_write, b"x")
    self._thread.join()
    self._close_pipes()

  def _close_pipes(self) -> None:
    os.close(self._wake_read)
    os.close(self._wake_write)

  def _run(self) -> None:
    """Serves calls until the pool is closed."""
    last = time.monotonic()
    while not self._closed:
      self._send_waiting()
      self._poll()
      now = time.monotonic()
      self._count(min(now - last, 2 * _TICK_S))
      last = now
    for process in self._processes:
      process.end()
      for call in process.in_flight.values():
        call.future.cancel()
    for call in self._waiting:
      call.future.cancel()

  def _is_async(self, call: _Call) -> bool:
    return self.signatures[call.index].is_async

  def _process_for(self, call: _Call) -> Process | None:
    """Returns a process that can take a call now, or None; may start one."""
    for process in self._processes:
      if process.signatures is None:
        continue
      others = process.in_flight.values()
      if not others:
        return process
      # A call whose process was lost must not share the next one.
      if (
        self._is_async(call)
        and len(others) < self._concurrency
        and all(map(self._is_async, others))
        and not any(one.losses for one in (call, *others))
      ):
        return process
    starting = any(p.signatures is None for p in self._processes)
    if len(self._processes) < self._max and not starting:
      self._processes.append(Process(self._functions, self._memory_gib))
    return None

  def _send_waiting(self) -> None:
    """Sends queued calls, in order, to free processes."""
    while self._waiting:
      process = self._process_for(self._waiting[0])
      if process is None:
        return
      with self._lock:
        call = self._waiting.popleft()
      self._numbers += 1
      call.spent_s = 0.0
      try:
        process.call(self._numbers, call.index, call.arguments)
      except Exception as error:  # noqa: BLE001 - pickle may raise anything.
        message = f"cannot be sent: {' '.join(str(error).split())[:200]}"
        call.future.set_result(CallResult(None, WRONG_TYPE, message))
        continue
      process.in_flight[self._numbers] = call

  def _poll(self) -> None:
    """Waits up to a tick for replies, room to write, or new calls."""
    with selectors.DefaultSelector() as selector:
      selector.register(self._wake_read, selectors.EVENT_READ)
      for process in self._processes:
        selector.register(process.read_fd, selectors.EVENT_READ, process)
        if process.has_unsent():
          selector.register(process.write_fd, selectors.EVENT_WRITE, process)
      ready = selector.select(_TICK_S)
    readable = []
    for key, events in ready:
      if key.data is None:
        os.read(self._wake_read, 1 << 16)
      elif events & selectors.EVENT_WRITE:
        key.data.flush()
      else:
        readable.append(key.data)
    for process in readable:
      self._receive(process)

  def _receive(self, process: Process) -> None:
    """Handles the replies of a process, or replaces it if it has ended."""
    try:
      replies = process.receive()
    except Closed:
      self._lose(process)
      return
    if process.signatures is None:
      problem = _take_load(process, replies)
      if problem:
        self._fail_waiting(problem)
      return
    for reply in replies:
      call = process.in_flight.pop(reply["number"])
      answer = CallResult(
        reply.get("value"),
        reply.get("failure", ""),
        reply.get("message", ""),
        reply["seconds"],
      )
      call.future.set_result(answer)

  def _lose(self, process: Process) -> None:
    """Replaces a process that exited by itself."""
    status = process.end()
    self._processes.remove(process)
    failure, message = DIED, f"its process ended {_ending(status)}"
    if status == keeper.TOO_MUCH:
      failure, message = MEMORY, self._too_much()
    for call in reversed(process.in_flight.values()):
      call.losses += 1
      if call.losses < _ATTEMPTS:
        self._waiting.appendleft(call)
      else:
        call.future.set_result(CallResult(None, failure, message, call.spent_s))

  def _too_much(self) -> str:
    """Returns the message about a process that the keeper killed."""
    memory = f"memory_gib={self._memory_gib:g} or " if self._memory_gib else ""
    return (
      f"its process and children exceeded {memory}{keeper.MAX_PROCESSES} "
      "processes and were killed"
    )

  def _fail_waiting(self, problem: str) -> None:
    """Fails all queued calls, because a new process cannot load functions."""
    with self._lock:
      waiting, self._waiting = self._waiting, collections.deque()
    for call in waiting:
      call.future.set_result(CallResult(None, DIED, problem))

  def _count(self, seconds: float) -> None:
    """Adds time to the running calls, and ends those past their limit."""
    for process in list(self._processes):
      if process.signatures is None:
        continue
      for call in process.in_flight.values():
        call.spent_s += seconds
      late = [c for c in process.in_flight.values() if c.spent_s > c.limit_s]
      if not late:
        continue
      process.end()
      self._processes.remove(process)
      for call in reversed(process.in_flight.values()):
        if call.spent_s <= call.limit_s:
          self._waiting.appendleft(call)
          continue
        message = f"not done in {call.limit_s:g} s; its process was killed"
        call.future.set_result(CallResult(None, TIMEOUT, message, call.spent_s))


def _ending(status: int) -> str:
  """Describes how a process ended, for messages."""
  number = status - keeper.SIGNALLED
  if number in signal.valid_signals():
    return f"by {signal.Signals(number).name}"
  return f"({status})"


def _take_load(process: Process, replies: Sequence[dict[str, Any]]) -> str:
  """Stores the signatures that a process reports. Returns its error, or ""."""
  for reply in replies:
    if "error" in reply:
      return reply["error"]
    process.pid = reply["pid"]
    process.signatures = [
      Signature(
        tuple(one["parameters"]),
        tuple(one["required"]),
        one["takes_any"],
        one["is_async"],
      )
      for one in reply["signatures"]
    ]
  return ""
