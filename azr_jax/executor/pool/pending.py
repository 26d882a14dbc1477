"""Unfinished jobs and their waiters, in order of submission.

`PendingJobs` sits between the threads that submit jobs and the dispatcher's
thread. Identical jobs in flight share one task, so they run once. Every future
that `submit` returns is completed here, exactly once.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError

from azr_jax.executor.job import STATUSES, Job, Result

ResultFuture = Future[Result]


@dataclasses.dataclass(eq=False)
class PoolTask:
  """A pool's unit of work: an unfinished job, or several identical ones.

  Attributes:
    job: the first of the identical jobs.
    number: a unique number.
    tries: how often a pool was lost while it held this task.
    waiting: the id and the future of each of the identical jobs.
  """

  job: Job
  number: int
  tries: int = 0
  waiting: list[tuple[str, ResultFuture]] = dataclasses.field(
    default_factory=list
  )

  def content(self) -> tuple:
    """Returns every field of the job but its id; equal for identical jobs."""
    job = self.job
    texts = (job.code, tuple(job.inputs), job.entry, tuple(job.forbidden))
    switches = job.validation, job.per_call
    return (*texts, tuple(job.libraries), job.runs, *switches)


class PendingJobs:
  """Submitted jobs without a verdict. Thread-safe."""

  def __init__(self, wake: Callable[[], None]):
    """Creates an empty queue.

    Args:
      wake: notifies the consuming thread of new or cancelled tasks. It must not
        block, because it is called under the lock.
    """
    self._wake = wake
    self._lock = threading.Lock()
    self._numbers = itertools.count(1)
    self._queue: collections.deque[PoolTask] = collections.deque()
    self._tasks: dict[tuple, PoolTask] = {}
    self._cancelled: list[PoolTask] = []
    self._counts: collections.Counter[str] = collections.Counter()
    self._closed = False

  @property
  def closed(self) -> bool:
    """Whether `close` or `end` was called."""
    return self._closed

  def submit(self, jobs: Sequence[Job]) -> list[ResultFuture]:
    """Queues jobs and returns their futures in order.

    Args:
      jobs: valid jobs; the caller has called `Job.check`.

    Raises:
      RuntimeError: the executor is closed.
    """
    futures = [ResultFuture() for _ in jobs]
    tasks: list[PoolTask] = []
    with self._lock:
      if self._closed:
        raise RuntimeError("the executor is closed")
      idle = not self._queue
      for job, future in zip(jobs, futures, strict=True):
        fresh = PoolTask(job, next(self._numbers))
        task = self._tasks.setdefault(fresh.content(), fresh)
        task.waiting.append((job.id, future))
        if task is fresh:
          self._queue.append(task)
        tasks.append(task)
      if idle:
        self._wake()
    for task, future in zip(tasks, futures, strict=True):
      future.add_done_callback(functools.partial(self._on_done, task))
    return futures

  def _on_done(self, task: PoolTask, future: ResultFuture) -> None:
    """Drops a task when its last waiter has cancelled its future."""
    if not future.cancelled():
      return
    future.set_running_or_notify_cancel()  # Wakes `futures.wait`.
    with self._lock:
      if self._closed or not _is_unwanted(task):
        return
      if self._forget(task):
        self._cancelled.append(task)
        self._wake()

  def take(self, max_tasks: int) -> list[PoolTask]:
    """Removes and returns the next tasks that still have a waiter."""
    tasks: list[PoolTask] = []
    with self._lock:
      while self._queue and len(tasks) < max_tasks:
        task = self._queue.popleft()
        if not _is_unwanted(task):
          tasks.append(task)
    return tasks

  def requeue(self, tasks: Iterable[PoolTask]) -> None:
    """Puts taken tasks back at the front of the queue, in order."""
    with self._lock:
      self._queue.extendleft(reversed(list(tasks)))

  def take_cancelled(self) -> list[PoolTask]:
    """Returns the tasks that lost their last waiter since the last call."""
    with self._lock:
      cancelled, self._cancelled = self._cancelled, []
    return cancelled

  def _forget(self, task: PoolTask) -> bool:
    """Stops later jobs from sharing a task; returns whether they could."""
    content = task.content()
    if self._tasks.get(content) is not task:
      return False
    del self._tasks[content]
    return True

  def finish(self, task: PoolTask, verdict: Result | Exception) -> None:
    """Completes a task's futures with its verdict, or with an exception."""
    with self._lock:
      self._forget(task)
      waiting = [pair for pair in task.waiting if not pair[1].cancelled()]
      if isinstance(verdict, Result):
        self._counts[verdict.status] += len(waiting)
    for job_id, future in waiting:
      with contextlib.suppress(InvalidStateError):  # Cancelled just now.
        if not isinstance(verdict, Result):
          future.set_exception(verdict)
        elif verdict.id == job_id:
          future.set_result(verdict)
        else:
          future.set_result(dataclasses.replace(verdict, id=job_id))

  def close(self) -> None:
    """Refuses further jobs and wakes the consuming thread."""
    with self._lock:
      if not self._closed:
        self._closed = True
        self._wake()

  def end(self, error: BaseException | None) -> None:
    """Cancels the unfinished jobs, or fails them with `error`."""
    with self._lock:
      self._closed = True
      unfinished = [
        pair for task in self._tasks.values() for pair in task.waiting
      ]
      self._tasks.clear()
      self._queue.clear()
    for _, future in unfinished:
      if error is None:
        future.cancel()
        continue
      with contextlib.suppress(InvalidStateError):  # Already cancelled.
        future.set_exception(error)

  def counters(self) -> dict[str, int]:
    """Returns the number of verdicts by status, and their sum as `programs`."""
    with self._lock:
      counts = {status: self._counts[status] for status in STATUSES}
    return counts | {"programs": sum(counts.values())}


def _is_unwanted(task: PoolTask) -> bool:
  return all(future.cancelled() for _, future in task.waiting)
