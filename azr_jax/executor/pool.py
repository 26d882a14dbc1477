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
import os
import select
import threading
import time
from collections.abc import Iterable, Sequence

from azr_jax.executor import frames, selftest, verdict
from azr_jax.executor.job import STATUSES, Job, Result
from azr_jax.executor.worker import WorkerGone, Zygote

WALLS = frozenset(
  ("seccomp", "landlock", "namespaces", "unprivileged", "limits")
)
HASH_SEEDS = (1, 2)
SLOTS = 2  # Children at a time per zygote: a loop must not block the rest.
GRACE_S = 3.0  # Past the time limit, an unanswered zygote counts as dead.
MAX_TRIES = 2

ResultFuture = concurrent.futures.Future[Result]


@dataclasses.dataclass(eq=False)
class _Task:
  """A job under way: its runs' results so far."""

  job: Job
  future: ResultFuture
  timeout_s: float
  results: dict[int, Result] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(eq=False)
class _Run:
  """One execution of a job; `seed` is the hash seed it needs, if any."""

  task: _Task
  index: int
  seed: int | None
  tries: int = 0
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
    self._counts: collections.Counter[str] = collections.Counter()
    self._closed = False
    self._serial = 0
    self._zygotes = [
      self._new_zygote(seed) for _ in range(workers) for seed in HASH_SEEDS
    ]
    try:
      greetings = [zygote.greet() for zygote in self._zygotes]
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
      self._layers = greetings[0] | self._prove_walls()
    except BaseException:
      self.close()
      raise

  def __enter__(self) -> "Executor":
    return self

  def __exit__(self, *exception: object) -> None:
    self.close()

  def submit(self, job: Job) -> ResultFuture:
    """Queues a job; the future holds its `Result`.

    Raises:
      TypeError, ValueError: a field of the job is not what it should be.
      RuntimeError: the executor is closed.
    """
    return self._submit(job, self._timeout_s)

  def map(self, jobs: Iterable[Job]) -> list[Result]:
    """Runs the jobs; results in order."""
    return [future.result() for future in [self.submit(job) for job in jobs]]

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

  def _submit(self, job: Job, timeout_s: float) -> ResultFuture:
    job.check()  # Here, not in the pool's thread, which serves everyone.
    task = _Task(job, concurrent.futures.Future(), timeout_s)
    seeds = (None,) if job.runs == 1 else HASH_SEEDS
    runs = [_Run(task, i, seeds[i % len(seeds)]) for i in range(job.runs)]
    with self._lock:
      if self._closed:
        raise RuntimeError("the executor is closed")
      idle = not self._queue
      self._queue.extend(runs)
      if idle:
        self._wake()
    return task.future

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
        runs = list(self._queue)
        self._queue.clear()
      for zygote in self._zygotes:
        runs += zygote.busy.values()
      self._end_zygotes()
      os.close(self._awake)
      with self._lock:
        os.close(self._alarm)
        self._alarm = -1
      for run in runs:
        if error is None:
          run.task.future.cancel()
        elif not run.task.future.done():
          run.task.future.set_exception(error)

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
      if run.task.future.cancelled():
        continue
      zygote = self._free_zygote(run.seed)
      if zygote is None:
        waiting.append(run)
      else:
        self._start(zygote, run)
        free -= 1
    if waiting:
      with self._lock:
        self._queue.extendleft(reversed(waiting))

  def _free_zygote(self, seed: int | None) -> Zygote | None:
    fitting = [z for z in self._zygotes if seed in (None, z.seed)]
    zygote = min(fitting, key=lambda z: len(z.busy))
    return zygote if len(zygote.busy) < SLOTS else None

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
    deadlines = [r.deadline for z in self._zygotes for r in z.busy.values()]
    wait_s = max(0.0, min(deadlines, default=0.0) - time.monotonic())
    ready = {
      descriptor
      for descriptor, _ in self._poll.poll(
        wait_s * 1000 + 1 if deadlines else None
      )
    }
    if self._awake in ready:
      os.read(self._awake, 4096)
    now = time.monotonic()
    for place, zygote in enumerate(self._zygotes):
      if zygote.writing in ready:
        zygote.flush()
        if not zygote.has_unsent():
          self._poll.unregister(zygote.writing)
      late = any(run.deadline < now for run in zygote.busy.values())
      try:
        if zygote.reading in ready:
          self._take(zygote)
        elif late:
          raise WorkerGone("an executor zygote does not answer")
      except WorkerGone:
        self._replace(place)

  def _take(self, zygote: Zygote) -> None:
    for number, seconds, seen, payload in zygote.receive():
      run = zygote.busy.pop(number)
      result = verdict.read_reply(run.task.job, seconds, seen, payload)
      self._finish(run, result)

  def _finish(self, run: _Run, result: Result) -> None:
    """Decides the job once its last run is in."""
    task = run.task
    task.results[run.index] = result
    if len(task.results) < task.job.runs:
      return
    final = verdict.agree([task.results[i] for i in range(task.job.runs)])
    with self._lock:
      self._counts[final.status] += 1
    if task.future.set_running_or_notify_cancel():
      task.future.set_result(final)

  def _replace(self, place: int) -> None:
    """Puts a new zygote in a dead one's place; its runs go once more."""
    dead = self._zygotes[place]
    self._poll.unregister(dead.reading)
    if dead.has_unsent():
      self._poll.unregister(dead.writing)
    dead.end()
    for run in dead.busy.values():
      if run.tries < MAX_TRIES:
        with self._lock:
          self._queue.appendleft(run)
      else:
        job = run.task.job
        self._finish(run, verdict.failure(job, "error", "WorkerDied"))
    fresh = self._new_zygote(dead.seed)
    self._zygotes[place] = fresh
    fresh.greet()
    self._poll.register(fresh.reading, select.POLLIN)

  def _prove_walls(self) -> dict[str, bool | str]:
    """Tries what must fail; raises if a wall that must stand does not."""
    pending = [
      self._submit(job, selftest.timeout_s(job)) for job in selftest.jobs()
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
