"""The jobs under way: who waits for each of them, and in what order they came.

Between the threads that submit jobs and the one that runs them. Identical jobs
that are under way together are one task, so that they run once. Every future
that is handed out here is completed here, exactly once.
"""

import collections
import concurrent.futures
import dataclasses
import threading
from collections.abc import Callable, Sequence

from azr_jax.executor.job import STATUSES, Job, Result

ResultFuture = concurrent.futures.Future[Result]


@dataclasses.dataclass(eq=False)
class Task:
  """A job under way.

  Attributes:
    job: the first of the identical jobs.
    timeout_s: wall-clock seconds per run.
    waiting: the name and the future of every one of them.
  """

  job: Job
  timeout_s: float
  waiting: list[tuple[str, ResultFuture]] = dataclasses.field(
    default_factory=list
  )

  def content(self) -> tuple:
    """What makes two jobs identical: all but their names."""
    job = self.job
    texts = (job.code, tuple(job.inputs), job.entry, tuple(job.forbidden))
    return (*texts, tuple(job.libraries), job.runs, self.timeout_s)


class Pending:
  """Jobs handed in and not yet answered. Thread-safe."""

  def __init__(self, wake: Callable[[], None]):
    """`wake` tells whoever takes the tasks that there are some; it must not
    block, for it is called under the lock."""
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

  def submit(self, jobs: Sequence[Job], timeout_s: float) -> list[ResultFuture]:
    """Queues jobs; their futures in order.

    Raises:
      TypeError, ValueError: a field of a job is not what it should be.
      RuntimeError: no more jobs are taken.
    """
    for job in jobs:
      job.check()  # Here, not in the thread that serves everyone.
    futures = [ResultFuture() for _ in jobs]
    with self._lock:
      if self._closed:
        raise RuntimeError("the executor is closed")
      idle = not self._queue
      for job, future in zip(jobs, futures, strict=True):
        fresh = Task(job, timeout_s)
        task = self._tasks.setdefault(fresh.content(), fresh)
        task.waiting.append((job.id, future))
        if task is fresh:
          self._queue.append(task)
      if idle:
        self._wake()
    return futures

  def take(self) -> Task | None:
    """Returns the next task that anybody waits for, or None."""
    with self._lock:
      while self._queue:
        task = self._queue.popleft()
        if not self._drop_unwanted(task):
          return task
    return None

  def dropped(self, task: Task) -> bool:
    """Whether nobody waits for a task any more; if so, it is forgotten."""
    with self._lock:
      return self._drop_unwanted(task)

  def _drop_unwanted(self, task: Task) -> bool:
    unwanted = all(future.cancelled() for _, future in task.waiting)
    if unwanted and self._tasks.get(task.content()) is task:
      self._forget(task)
      for _, future in task.waiting:
        future.set_running_or_notify_cancel()  # Whoever waits hears of it.
    return unwanted

  def _forget(self, task: Task) -> None:
    if self._tasks.get(task.content()) is task:
      del self._tasks[task.content()]

  def finish(self, task: Task, result: Result) -> None:
    """Gives a task's verdict to all who wait for it."""
    with self._lock:
      self._forget(task)
      self._counts[result.status] += len(task.waiting)
    for name, future in task.waiting:
      if future.set_running_or_notify_cancel():
        future.set_result(dataclasses.replace(result, id=name))

  def close(self) -> None:
    """Takes no more jobs, and wakes who runs them to hear of it."""
    with self._lock:
      if not self._closed:
        self._closed = True
        self._wake()

  def end(self, error: BaseException | None) -> None:
    """Gives up what is left: cancelled, or failed with an error."""
    with self._lock:
      self._closed = True
      left = [pair for task in self._tasks.values() for pair in task.waiting]
      self._tasks.clear()
      self._queue.clear()
    for _, future in left:
      if error is None:
        future.cancel()
      if future.set_running_or_notify_cancel():
        future.set_exception(error or RuntimeError("the executor is closed"))

  def counters(self) -> dict[str, int]:
    """Verdicts by status, and their sum as `programs`."""
    with self._lock:
      counts = {status: self._counts[status] for status in STATUSES}
    return counts | {"programs": sum(counts.values())}

  def forget_counts(self) -> None:
    """Starts the counters anew."""
    with self._lock:
      self._counts.clear()
