"""The unfinished jobs: who waits for each of them, in the order they came.

It stands between the threads that submit jobs and the thread that runs them.
Identical jobs that are unfinished at the same time are one task, so they run
once. Every future that is handed out here is completed here, exactly once.
"""

import collections
import concurrent.futures
import dataclasses
import threading
from collections.abc import Callable, Sequence

from azr_jax.executor.job import STATUSES, Job, Result
from azr_jax.executor.limits import Limits

ResultFuture = concurrent.futures.Future[Result]


@dataclasses.dataclass(eq=False)
class Task:
  """An unfinished job, or several identical ones.

  Attributes:
    job: the first of the identical jobs.
    limits: what each of its runs may use.
    waiting: the id and the future of each of the identical jobs.
  """

  job: Job
  limits: Limits
  waiting: list[tuple[str, ResultFuture]] = dataclasses.field(
    default_factory=list
  )

  def content(self) -> tuple:
    """Returns all that identical jobs share, which is all but their ids."""
    job = self.job
    texts = (job.code, tuple(job.inputs), job.entry, tuple(job.forbidden))
    return (*texts, tuple(job.libraries), job.runs, self.limits)


class Pending:
  """Jobs that were submitted and have no verdict yet. Thread-safe."""

  def __init__(self, wake: Callable[[], None]):
    """Starts without jobs.

    Args:
      wake: tells the thread that takes tasks that there are some. It must not
        block, because it is called under the lock.
    """
    self._wake = wake
    self._lock = threading.Lock()
    self._queue: collections.deque[Task] = collections.deque()
    self._tasks: dict[tuple, Task] = {}
    self._counts: collections.Counter[str] = collections.Counter()
    self._closed = False

  @property
  def closed(self) -> bool:
    """Whether `close` or `end` was called."""
    return self._closed

  def submit(self, jobs: Sequence[Job], limits: Limits) -> list[ResultFuture]:
    """Queues jobs and returns their futures in order.

    Args:
      jobs: valid ones; the caller has called `Job.check`.
      limits: what each of their runs may use.

    Raises:
      RuntimeError: no more jobs are taken.
    """
    futures = [ResultFuture() for _ in jobs]
    with self._lock:
      if self._closed:
        raise RuntimeError("the executor is closed")
      idle = not self._queue
      for job, future in zip(jobs, futures, strict=True):
        fresh = Task(job, limits)
        task = self._tasks.setdefault(fresh.content(), fresh)
        task.waiting.append((job.id, future))
        if task is fresh:
          self._queue.append(task)
      if idle:
        self._wake()
    return futures

  def take(self) -> Task | None:
    """Removes and returns the next task that has a waiter, or None."""
    with self._lock:
      while self._queue:
        task = self._queue.popleft()
        if not self._drop_unwanted(task):
          return task
    return None

  def dropped(self, task: Task) -> bool:
    """Returns whether a task has no waiter any more, and then forgets it."""
    with self._lock:
      return self._drop_unwanted(task)

  def _drop_unwanted(self, task: Task) -> bool:
    unwanted = all(future.cancelled() for _, future in task.waiting)
    if unwanted and self._tasks.get(task.content()) is task:
      self._forget(task)
      for _, future in task.waiting:
        future.set_running_or_notify_cancel()  # Wakes `futures.wait`.
    return unwanted

  def _forget(self, task: Task) -> None:
    if self._tasks.get(task.content()) is task:
      del self._tasks[task.content()]

  def finish(self, task: Task, result: Result) -> None:
    """Gives a task's verdict to all its waiters, unless they were ended."""
    with self._lock:
      if self._tasks.get(task.content()) is not task:
        return
      self._forget(task)
      self._counts[result.status] += len(task.waiting)
    for job_id, future in task.waiting:
      if future.set_running_or_notify_cancel():
        future.set_result(dataclasses.replace(result, id=job_id))

  def close(self) -> None:
    """Refuses further jobs and wakes the thread that runs them."""
    with self._lock:
      if not self._closed:
        self._closed = True
        self._wake()

  def end(self, error: BaseException | None) -> None:
    """Cancels the unfinished jobs, or fails them with the error."""
    self.close()
    with self._lock:
      unfinished = [
        pair for task in self._tasks.values() for pair in task.waiting
      ]
      self._tasks.clear()
      self._queue.clear()
    for _, future in unfinished:
      if error is None:
        future.cancel()
      if future.set_running_or_notify_cancel():
        future.set_exception(error or RuntimeError("the executor is closed"))

  def counters(self) -> dict[str, int]:
    """Returns verdicts by status, and their sum as `programs`."""
    with self._lock:
      counts = {status: self._counts[status] for status in STATUSES}
    return counts | {"programs": sum(counts.values())}

  def forget_counts(self) -> None:
    """Sets the counters to zero."""
    with self._lock:
      self._counts.clear()
