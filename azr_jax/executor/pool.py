"""The pool: jobs in, verdicts out, over a set of zygotes.

The life of a job:
1. `submit` queues one run per requested run and wakes the pool's thread;
2. the thread gives each run to the least busy zygote with a free slot, the
   second run of a job to a zygote with another hash seed;
3. replies are read as they come; a zygote that dies, or has not answered
   well past the time limit, is replaced and its runs are tried once more;
4. when all runs of a job are in, its verdict is decided here, in the trusted
   process: only text came back, and it is parsed, never evaluated.

All zygotes belong to that one thread; the lock guards the queue and counts.
"""

import collections
import concurrent.futures
import dataclasses
import math
import os
import select
import signal
import threading
import time
from collections.abc import Iterable, Sequence

from azr_jax.executor import frames, selftest, verdict, worker
from azr_jax.executor.job import STATUSES, Job, Result
from azr_jax.executor.worker import WorkerGone, Zygote

WALLS = frozenset(
  ("seccomp", "landlock", "namespaces", "unprivileged", "limits")
)
HASH_SEEDS = (1, 2)
SLOTS = 2  # Children at a time per zygote: a loop must not block the rest.
GRACE_S = 3.0  # Past the time limit, an unanswered zygote counts as dead.
MAX_TRIES = 2
MAX_FALSE_STARTS = 5  # In a row; then something is wrong with the machine.
KILLED = f"Signal{int(signal.SIGKILL)}"

ResultFuture = concurrent.futures.Future[Result]


@dataclasses.dataclass(eq=False)
class _Task:
  """A job under way: who waits for it, and its runs' results so far.

  `waiting` grows, with each identical job, under the pool's lock.
  """

  job: Job
  timeout_s: float
  waiting: list[tuple[str, ResultFuture]] = dataclasses.field(
    default_factory=list
  )
  results: dict[int, Result] = dataclasses.field(default_factory=dict)

  def content(self) -> tuple:
    """What makes two jobs identical: all but their names."""
    job = self.job
    texts = (job.code, tuple(job.inputs), job.entry, tuple(job.forbidden))
    return (*texts, job.runs, self.timeout_s)

  def unwanted(self) -> bool:
    """Whether nobody waits any more."""
    return all(future.cancelled() for _, future in self.waiting)


@dataclasses.dataclass(eq=False)
class _Run:
  """One execution of a job.

  `seed` is the hash seed it needs, if any. After the loss of its zygote it
  waits for one born later: the rest may be as stuck as the first was.
  """

  task: _Task
  index: int
  seed: int | None
  tries: int = 0
  born_after: float = 0.0
  deadline: float = 0.0


class Executor:
  """A pool of sandboxed Python processes; see executor/README.md.

  Thread-safe; a context manager. Closing it leaves no process.
  """

  def __init__(
    self,
    workers: int,
    timeout_s: float,
    memory_mb: int,
    unsafe: bool = False,
    without: Sequence[str] = (),
  ):
    """Starts the zygotes and proves their walls.

    Args:
      workers: pairs of zygotes, about the cores to spare.
      timeout_s: wall-clock seconds per program, all its inputs together.
      memory_mb: address space per program.
      unsafe: run without seccomp, where the kernel has none.
      without: others of `WALLS` to leave out, to see what each catches.

    Raises:
      ValueError: an argument is out of range.
      RuntimeError: a zygote does not start or a wall does not stand.
    """
    least = {"workers": (workers, 1), "memory_mb": (memory_mb, 64)}
    for name, (value, minimum) in least.items():
      if value < minimum:
        raise ValueError(f"{name} is {value}; expected at least {minimum}")
    if not timeout_s > 0:
      raise ValueError(f"timeout_s is {timeout_s}; expected more than 0")
    self._timeout_s = timeout_s
    self._memory_mb = memory_mb
    optional = WALLS - {"seccomp"}  # Which has a name of its own to go by.
    if not optional.issuperset(without):
      raise ValueError(f"without is {without}; expected of {sorted(optional)}")
    self._walls = WALLS - set(without) - ({"seccomp"} if unsafe else set())
    self._lock = threading.Lock()
    self._queue: collections.deque[_Run] = collections.deque()
    self._tasks: dict[tuple, _Task] = {}  # Under way, by content.
    self._counts: collections.Counter[str] = collections.Counter()
    self._closed = False
    self._serial = 0
    self._false_starts = 0
    self._zygotes = [
      self._new_zygote(seed) for _ in range(workers) for seed in HASH_SEEDS
    ]
    try:
      walls = [zygote.wait_for_start() for zygote in self._zygotes]
    except WorkerGone:
      self._end_zygotes()
      raise
    self._awake, self._alarm = os.pipe()
    os.set_blocking(self._awake, False)
    os.set_blocking(self._alarm, False)
    self._poll = select.poll()
    self._poll.register(self._awake, select.POLLIN)
    for zygote in self._zygotes:
      self._poll.register(zygote.reading, select.POLLIN)
    self._thread = threading.Thread(
      target=self._work, name="executor", daemon=True
    )
    self._thread.start()
    try:
      self._layers = walls[0] | self._prove_walls()
    except BaseException:
      self.close()
      raise

  def __enter__(self) -> "Executor":
    return self

  def __exit__(self, *exception: object) -> None:
    self.close()

  def submit(self, job: Job) -> ResultFuture:
    """Queues a job; the future holds its `Result`.

    While an identical job is under way, the two share its runs.

    Raises:
      TypeError, ValueError: a field of the job is not what it should be.
      RuntimeError: the executor is closed.
    """
    return self._submit([job], self._timeout_s)[0]

  def map(self, jobs: Iterable[Job]) -> list[Result]:
    """Runs the jobs, identical ones once; results in order.

    Raises:
      TypeError, ValueError, RuntimeError: as `submit`.
    """
    futures = self._submit(list(jobs), self._timeout_s)
    return [future.result() for future in futures]

  def counters(self) -> dict[str, int]:
    """Verdicts by status since the start, and their sum as `programs`."""
    with self._lock:
      counts = {status: self._counts[status] for status in STATUSES}
    return counts | {"programs": sum(counts.values())}

  def layers(self) -> dict[str, bool | str]:
    """Which walls stand, and what the self-test saw denied."""
    return dict(self._layers)

  def processes(self) -> list[int]:
    """Process ids of the zygotes."""
    return [zygote.pid for zygote in self._zygotes]

  def close(self) -> None:
    """Ends every process; jobs under way are cancelled."""
    with self._lock:
      self._closed = True
      self._wake()
    self._thread.join()

  def _submit(
    self, jobs: Sequence[Job], timeout_s: float
  ) -> list[ResultFuture]:
    for job in jobs:
      job.check()  # Here, not in the pool's thread, which serves everyone.
    futures = [ResultFuture() for _ in jobs]
    with self._lock:
      if self._closed:
        raise RuntimeError("the executor is closed")
      idle = not self._queue
      for job, future in zip(jobs, futures, strict=True):
        self._enqueue(job, future, timeout_s)
      if idle:
        self._wake()
    return futures

  def _enqueue(self, job: Job, future: ResultFuture, timeout_s: float) -> None:
    """Adds to an identical job's waiting list, or queues the job's runs."""
    fresh = _Task(job, timeout_s)
    task = self._tasks.setdefault(fresh.content(), fresh)
    task.waiting.append((job.id, future))
    if task is fresh:
      seeds = (None,) if job.runs == 1 else HASH_SEEDS
      for index in range(job.runs):
        self._queue.append(_Run(task, index, seeds[index % len(seeds)]))

  def _wake(self) -> None:
    try:
      os.write(self._alarm, b"!")
    except (BlockingIOError, OSError):  # Full: awake. Closed: no one sleeps.
      pass

  def _work(self) -> None:
    """Runs in the pool's thread until the executor is closed."""
    error: BaseException | None = None
    try:
      while not self._closed:
        self._dispatch()
        self._attend()
    except (WorkerGone, OSError) as failed:
      error = failed
    finally:
      with self._lock:
        self._closed = True
        left = [pair for task in self._tasks.values() for pair in task.waiting]
        self._tasks.clear()
        self._queue.clear()
      self._end_zygotes()
      os.close(self._awake)
      with self._lock:
        os.close(self._alarm)
        self._alarm = -1
      for _, future in left:
        if error is None:
          future.cancel()
        elif future.set_running_or_notify_cancel():
          future.set_exception(error)

  def _new_zygote(self, seed: int) -> Zygote:
    return Zygote(seed, self._walls, self._memory_mb)

  def _end_zygotes(self) -> None:
    for zygote in self._zygotes:
      zygote.end()

  def _dispatch(self) -> None:
    """Gives queued runs to free slots, in order as far as seeds allow."""
    free = sum(SLOTS - len(zygote.busy) for zygote in self._zygotes)
    waiting: list[_Run] = []
    while free > 0 and len(waiting) < 64:
      with self._lock:
        if not self._queue:
          break
        run = self._queue.popleft()
        if run.task.unwanted():
          self._tasks.pop(run.task.content(), None)
          continue
      zygote = self._free_zygote(run)
      if zygote is None:
        waiting.append(run)
      else:
        self._start(zygote, run)
        free -= 1
    if waiting:
      with self._lock:
        self._queue.extendleft(reversed(waiting))

  def _free_zygote(self, run: _Run) -> Zygote | None:
    fitting = [
      zygote
      for zygote in self._zygotes
      if zygote.layers is not None
      and zygote.born >= run.born_after
      and run.seed in (None, zygote.seed)
    ]
    zygote = min(fitting, key=lambda z: len(z.busy), default=None)
    return zygote if zygote and len(zygote.busy) < SLOTS else None

  def _start(self, zygote: Zygote, run: _Run) -> None:
    self._serial += 1
    run.tries += 1
    run.deadline = time.monotonic() + run.task.timeout_s + GRACE_S
    zygote.busy[self._serial] = run
    job = run.task.job
    zygote.send(
      frames.pack_request(
        self._serial,
        run.task.timeout_s,
        job.code,
        job.inputs,
        job.entry,
        job.forbidden,
      )
    )
    if zygote.has_unsent():
      self._poll.register(zygote.writing, select.POLLOUT)

  def _attend(self) -> None:
    """Waits for replies, for new jobs, or for a deadline; handles them."""
    deadlines = [_deadline(zygote) for zygote in self._zygotes]
    wait_s = max(0.0, min(deadlines) - time.monotonic())
    wait_ms = None if wait_s == math.inf else wait_s * 1000 + 1
    ready = {descriptor for descriptor, _ in self._poll.poll(wait_ms)}
    if self._awake in ready:
      os.read(self._awake, 4096)
    now = time.monotonic()
    for place, zygote in enumerate(self._zygotes):
      if zygote.writing in ready:
        zygote.flush()
        if not zygote.has_unsent():
          self._poll.unregister(zygote.writing)
      try:
        if zygote.reading in ready:
          self._take(zygote)
        elif _deadline(zygote) < now:
          raise WorkerGone("an executor zygote does not answer")
      except WorkerGone:
        self._replace(place)

  def _take(self, zygote: Zygote) -> None:
    for number, seconds, seen, payload in zygote.receive():
      run = zygote.busy.pop(number)
      result = verdict.read_reply(run.task.job, seconds, seen, payload)
      # No program can kill itself: it was somebody else, or short memory.
      if result.error == KILLED and run.tries < MAX_TRIES:
        self._retry(run)
      else:
        self._finish(run, result)

  def _retry(self, run: _Run) -> None:
    with self._lock:
      self._queue.appendleft(run)

  def _finish(self, run: _Run, result: Result) -> None:
    """Decides the job once its last run is in."""
    task = run.task
    task.results[run.index] = result
    if len(task.results) < task.job.runs:
      return
    final = verdict.agree([task.results[i] for i in range(task.job.runs)])
    with self._lock:
      self._tasks.pop(task.content(), None)
      self._counts[final.status] += len(task.waiting)
    for name, future in task.waiting:
      if future.set_running_or_notify_cancel():
        future.set_result(dataclasses.replace(final, id=name))

  def _replace(self, place: int) -> None:
    """Puts a new zygote in a dead one's place; its runs go once more."""
    dead = self._zygotes[place]
    self._poll.unregister(dead.reading)
    if dead.has_unsent():
      self._poll.unregister(dead.writing)
    dead.end()
    for run in dead.busy.values():
      if run.tries < MAX_TRIES:
        run.born_after = time.monotonic()
        self._retry(run)
      else:
        job = run.task.job
        self._finish(run, verdict.failure(job, "error", "WorkerDied"))
    self._false_starts = self._false_starts + 1 if dead.layers is None else 0
    if self._false_starts > MAX_FALSE_STARTS:
      raise WorkerGone("executor zygotes die before they have started")
    fresh = self._zygotes[place] = self._new_zygote(dead.seed)
    self._poll.register(fresh.reading, select.POLLIN)

  def _prove_walls(self) -> dict[str, bool | str]:
    """Tries what must fail; raises if a wall that must stand does not."""
    pending = [
      self._submit([job], selftest.timeout_s(job))[0] for job in selftest.jobs()
    ]
    seccomp = "seccomp" in self._walls
    layers: dict[str, bool | str] = {"seccomp": seccomp}
    for result in [future.result() for future in pending]:
      layers[f"denies_{result.id}"] = selftest.held(result)
      if seccomp and not selftest.held(result):
        raise RuntimeError(
          f"executor self-test: {result.id} gave {result}; expected it to be "
          "denied. On a system without seccomp, ask for unsafe=True by name."
        )
    with self._lock:
      self._counts.clear()
    return layers


def _deadline(zygote: Zygote) -> float:
  """When a zygote that has said nothing counts as dead."""
  if zygote.layers is None:
    return zygote.born + worker.START_S
  return min((run.deadline for run in zygote.busy.values()), default=math.inf)
