"""Spreads this process's jobs over pools in other processes.

The life of a job:
1. `PendingJobs.submit` queues it and wakes the dispatcher's thread;
2. the thread sends it, together with other waiting jobs, to the least loaded
   pool. Each pool holds a bounded number of jobs; the others wait here;
3. the pool schedules it and decides its verdict (`pool.py`). Verdicts return
   one by one, as soon as they are known;
4. if the pool is lost, its jobs go to the other pools or to its successor.

A remote pool is a `Server`: a process on this machine (`local_server.py`) or an
actor on a node of a Ray cluster (`cluster.py`). The thread only packs jobs and
completes futures, because it shares the interpreter with the trainer.
"""

import collections
import heapq
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from azr_jax.executor.job import WORKER_DIED, Result
from azr_jax.executor.pool import verdict
from azr_jax.executor.pool.pending import PendingJobs, PoolTask

# Maximum number of jobs per worker that a server holds; it gets more when half
# of them are done. 64 jobs last about 0.1 s, as long as a busy trainer may
# starve this thread.
JOBS_PER_WORKER = 64
BATCH = 64  # Jobs assigned at a time.
MAX_TRIES = 3
CHECK_S = 1.0  # Seconds between checks for silent servers.


class ServerLost(RuntimeError):
  """A server exited, is silent, or gave up; the message says why."""


class Server(Protocol):
  """A pool in another process. Only the dispatcher's thread calls it.

  Attributes:
    workers: the number of zygote pairs.
    in_flight: the tasks sent to the server that have no verdict yet, by number.
      The dispatcher maintains it.
    layers: which sandbox layers are active; None until the server has started.
    processes: the ids of the server's processes, for inspection.
    descriptor: a descriptor that becomes readable when `receive` has something
      to process; None for a server that calls `notify` instead.
  """

  workers: int
  in_flight: dict[int, PoolTask]
  layers: dict[str, bool] | None
  processes: list[int]
  descriptor: int | None

  def send(self, tasks: Sequence[PoolTask]) -> None:
    """Sends tasks, without waiting."""
    ...

  def cancel(self, numbers: Sequence[int]) -> None:
    """Tells the server to drop these tasks, without waiting."""
    ...

  def has_unsent(self) -> bool:
    """Returns whether to call `flush` when the descriptor accepts bytes."""
    ...

  def flush(self) -> None:
    """Sends buffered bytes."""
    ...

  def receive(self) -> Sequence[tuple[int, Result | Exception]]:
    """Returns the numbers and verdicts of tasks that have ended.

    A task that the server cannot run gets an exception instead of a verdict.

    Raises:
      ServerLost: the server exited or gave up.
    """
    ...

  def check(self) -> None:
    """Checks for silence; called every `CHECK_S`.

    Raises:
      ServerLost: the server has been silent for too long.
    """
    ...

  def restart(self, error: ServerLost) -> None:
    """Restarts a lost server, without waiting.

    Raises:
      ServerLost: `error`, if the server is gone for good.
    """
    ...

  def end(self) -> None:
    """Ends the server and all its processes."""
    ...


class Dispatcher:
  """Servers, and the thread that sends them jobs.

  Attributes:
    pending: the unfinished jobs.
  """

  def __init__(self, name: str):
    """Creates a dispatcher without servers; call `start` next.

    Args:
      name: the thread's name.
    """
    self._wakes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    self._ended = False
    self._wake_lock = threading.Lock()
    self.pending = PendingJobs(self._wake)
    self._servers: list[Server] = []
    self._last_loss: ServerLost | None = None
    self._notified: collections.deque[Server] = collections.deque()
    self._enough_started = threading.Event()
    self._error: BaseException | None = None
    self._epoll = select.epoll()
    self._epoll.register(self._wakes, select.EPOLLIN)
    self._watched: dict[int, tuple[Server, int]] = {}
    self._thread = threading.Thread(target=self._work, name=name, daemon=True)

  def start(
    self,
    servers: Sequence[Server],
    needed: int,
    start_timeout_s: float,
    expected: str = "",
    on_end: Callable[[], None] = lambda: None,
  ) -> None:
    """Starts the thread.

    Args:
      servers: the servers, which may still be starting.
      needed: the number of servers that `wait_for_start` waits for.
      start_timeout_s: after this many seconds without a ready server, all
        unfinished jobs fail.
      expected: what a server needs to become ready; appended to the error.
      on_end: called by the thread after the servers have ended.
    """
    self._servers, self._needed = list(servers), needed
    self._start_timeout_s, self._expected = start_timeout_s, expected
    self._on_end = on_end
    self._ready_at = time.monotonic()
    self._thread.start()

  def wait_for_start(self) -> None:
    """Waits until enough servers have started.

    Raises:
      RuntimeError: too few servers started.
    """
    try:
      self._enough_started.wait()
      if self._error is not None:
        raise self._error
    except BaseException:  # Not even Ctrl-C may leave processes behind.
      self.close()
      raise

  def ready(self) -> list[Server]:
    """Returns the servers that have started and are not lost."""
    return [s for s in self._servers if s.layers is not None]

  def layers(self) -> dict[str, bool]:
    """Returns which sandbox layers are active on every server."""
    found = [server.layers or {} for server in self.ready()]
    return {
      name: all(layers.get(name, False) for layers in found)
      for name in (found[0] if found else ())
    }

  def processes(self) -> list[int]:
    """Returns the process ids that the servers report."""
    return [pid for server in self.ready() for pid in server.processes]

  def close(self) -> None:
    """Ends every server; unfinished jobs are cancelled."""
    self.pending.close()
    self._thread.join()

  def notify(self, server: Server) -> None:
    """Makes the dispatcher's thread call `receive`. Thread-safe."""
    self._notified.append(server)
    self._wake()

  def _wake(self) -> None:
    with self._wake_lock:
      if not self._ended:  # Afterwards the descriptor may be reused.
        os.eventfd_write(self._wakes, 1)

  def _work(self) -> None:
    """Runs the thread's loop until the executor is closed."""
    next_check = time.monotonic() + CHECK_S
    try:
      while not self.pending.closed:
        self._cancel()
        self._assign()
        for server in self._wait():
          self._receive(server)
        if time.monotonic() > next_check:
          self._check()
          next_check = time.monotonic() + CHECK_S
    except Exception as error:  # noqa: BLE001 - passed on to the waiters.
      self._error = error
    finally:
      self.pending.end(self._error)
      for server in self._servers:
        server.end()
      self._on_end()
      with self._wake_lock:
        self._ended = True
        os.close(self._wakes)
      self._epoll.close()
      self._enough_started.set()

  def _cancel(self) -> None:
    """Tells the servers to drop cancelled tasks."""
    cancelled = self.pending.take_cancelled()
    if not cancelled:
      return
    for server in self._servers:
      numbers = [
        task.number
        for task in cancelled
        if server.in_flight.pop(task.number, None) is not None
      ]
      if numbers:
        server.cancel(numbers)

  def _assign(self) -> None:
    """Spreads waiting tasks evenly over the servers with room for more."""
    while loads := [
      (_load(server), index)
      for index, server in enumerate(self._servers)
      if _room(server)
    ]:
      room = sum(_room(self._servers[index]) for _, index in loads)
      tasks = self.pending.take(min(room, BATCH))
      if not tasks:
        return
      heapq.heapify(loads)
      given: dict[int, list[PoolTask]] = collections.defaultdict(list)
      for task in tasks:
        _, index = loads[0]
        server = self._servers[index]
        given[index].append(task)
        server.in_flight[task.number] = task
        if len(server.in_flight) < JOBS_PER_WORKER * server.workers:
          heapq.heapreplace(loads, (_load(server), index))
        else:
          heapq.heappop(loads)
      for index, assigned in given.items():
        self._servers[index].send(assigned)

  def _wait(self) -> Iterable[Server]:
    """Waits for servers with something to process; returns each once."""
    for server in self._servers:
      self._watch(server)
    ready: dict[Server, None] = {}
    for descriptor, _ in self._epoll.poll(CHECK_S):
      if descriptor == self._wakes:
        os.eventfd_read(self._wakes)
        continue
      server, _ = self._watched[descriptor]
      server.flush()
      ready[server] = None
    while self._notified:
      ready[self._notified.popleft()] = None
    return ready

  def _watch(self, server: Server) -> None:
    """Updates the epoll registration of a server to its state."""
    descriptor = server.descriptor
    if descriptor is None:
      return
    events = select.EPOLLIN | (select.EPOLLOUT if server.has_unsent() else 0)
    if self._watched.get(descriptor) == (server, events):
      return
    if descriptor in self._watched:
      self._epoll.modify(descriptor, events)
    else:
      self._epoll.register(descriptor, events)
    self._watched[descriptor] = server, events

  def _receive(self, server: Server) -> None:
    """Completes tasks with the verdicts that a server has sent."""
    try:
      verdicts = server.receive()
    except ServerLost as error:
      self._lose(server, error)
      return
    for number, result in verdicts:
      task = server.in_flight.pop(number, None)
      if task is not None:
        self.pending.finish(task, result)
    if not self._enough_started.is_set():
      if len(self.ready()) >= self._needed:
        self._enough_started.set()

  def _check(self) -> None:
    """Detects silent servers.

    Raises:
      RuntimeError: no server has been ready for too long.
    """
    for server in list(self._servers):
      try:
        server.check()
      except ServerLost as error:
        self._lose(server, error)
    now = time.monotonic()
    if self.ready():
      self._ready_at = now
    elif now - self._ready_at > self._start_timeout_s:
      raise RuntimeError(
        f"no executor server was ready in {self._start_timeout_s:.0f} s"
        f"{self._expected}"
      ) from self._last_loss

  def _lose(self, server: Server, error: ServerLost) -> None:
    """Requeues a lost server's tasks and restarts the server.

    Raises:
      ServerLost: no server is left, or too few ever started.
    """
    lost = list(server.in_flight.values())
    server.in_flight.clear()
    self._last_loss = error
    if server.descriptor in self._watched:
      self._epoll.unregister(server.descriptor)
      del self._watched[server.descriptor]
    try:
      server.restart(error)
    except ServerLost:
      self._servers.remove(server)
      server.end()
      if not self._servers or not self._enough_started.is_set():
        raise
    logging.warning("%s; its %d unfinished jobs run again", error, len(lost))
    for task in lost:
      task.tries += 1
    self.pending.requeue(task for task in lost if task.tries < MAX_TRIES)
    for task in lost:
      if task.tries >= MAX_TRIES:
        died = verdict.failure(task.job, "error", WORKER_DIED, is_lost=True)
        self.pending.finish(task, died)


def _room(server: Server) -> int:
  """Returns how many more jobs to send to a server: none, or a large batch."""
  most = JOBS_PER_WORKER * server.workers
  room = most - len(server.in_flight)
  return room if server.layers is not None and 2 * room >= most else 0


def _load(server: Server) -> float:
  """Returns a server's unfinished jobs per worker."""
  return len(server.in_flight) / server.workers
