"""The pool of one process: schedules jobs over a set of zygotes.

The life of a job:
1. `submit` queues its runs;
2. each run goes to the least busy zygote with its hash seed (`hash_seeds.py`)
   and a free slot;
3. replies are read as they arrive. A child requests a process per call if its
   program might tell calls apart (`independence.py`). The calls then go to the
   front of the queue, one by one. A zygote that dies, or sends no heartbeat for
   `HEARTBEAT_TIMEOUT_S`, is replaced, and its successor retries its runs once;
4. when all runs of a job have ended, its verdict is decided here, in a trusted
   process. Only text came back, and it is parsed, never evaluated. Long outputs
   are compared by another run (`comparison.py`).

A pool has no thread. Its owner calls `step` in a loop, as `server.py` does, and
takes the `verdicts`. No step looks at all zygotes, so a run costs the same with
2 zygotes as with 400 (`schedule.py`).
"""

import dataclasses
import functools
import math
import select
import time
from collections.abc import Callable, Collection, Sequence

from azr_jax.executor import comparison, hash_seeds, selftest
from azr_jax.executor.child import clock_steps, frames
from azr_jax.executor.job import WORKER_DIED, Job, Result
from azr_jax.executor.limits import Limits
from azr_jax.executor.pool import verdict
from azr_jax.executor.pool.schedule import Deadlines, FreeSlots, RunQueue
from azr_jax.executor.pool.worker import WorkerGone, Zygote

SLOTS = 2  # Concurrent children per zygote, so an endless loop blocks no job.
# A zygote with runs counts as dead after this many seconds without a reply or
# heartbeat. It sends a heartbeat every second, however long programs may run.
HEARTBEAT_TIMEOUT_S = 10.0
MAX_TRIES = 2
# Workers per zygote that compares long outputs.
WORKERS_PER_COMPARISON = 8
MAX_FALSE_STARTS = 5  # Consecutive zygotes that may die while starting.


@dataclasses.dataclass(eq=False)
class _Run:
  """One execution of a job.

  Attributes:
    shift_s: how far ahead the run's clocks are, in seconds; None if they are
      not replaced.
    limits: the run's time limits.
    seed: the hash seed that the run needs.
    finish: called with the run's result.
    is_wanted: returns whether a caller still awaits the result.
    is_split: whether each call has a process of its own.
    parts: the results of the finished calls, if the run is split.
    slept_s: how long these calls slept, in seconds.
    tries: how often the run, or its next call, was sent to a zygote.
  """

  job: Job
  shift_s: int | None
  limits: Limits
  seed: int
  finish: Callable[[Result], None]
  is_wanted: Callable[[], bool]
  is_split: bool = False
  parts: list[Result] = dataclasses.field(default_factory=list)
  slept_s: float = 0.0
  tries: int = 0

  def next_part(self) -> tuple[Job, Limits]:
    """Returns the next part of the job to run, and its limits."""
    if not self.is_split:
      return self.job, self.limits
    text = self.job.inputs[len(self.parts)]
    left_s = self.limits.run_s - sum(part.cpu_s for part in self.parts)
    sleep_s = self.limits.sleep_s - self.slept_s
    limits = self.limits._replace(
      run_s=max(0.0, left_s), sleep_s=max(0.0, sleep_s)
    )
    return dataclasses.replace(self.job, inputs=(text,)), limits

  def end_part(self, part: Result) -> Result | None:
    """Adds a part's result; returns the run's result if it was the last."""
    if not self.is_split:
      return part
    self.parts.append(part)
    self.tries = 0
    if verdict.ends_run(part) or len(self.parts) == len(self.job.inputs):
      return verdict.of_parts(self.job, self.parts)
    return None


class ZygotePool:
  """The zygotes of this process, and the runs that wait for them.

  Attributes:
    layers: which sandbox layers are active, and what the self-test denied.
      None until all zygotes have started and the self-test has passed.
    verdicts: the number and verdict of each job that has ended; the owner
      removes them.
    replaced: how many zygotes have been replaced.
  """

  def __init__(
    self,
    workers: int,
    limits: Callable[[Job], Limits],
    memory_mb: int,
    layers: Collection[str],
    library_names: Sequence[str] = (),
    paths: Sequence[str] = (),
    start_zygote: Callable[..., Zygote] = Zygote,
  ):
    """Starts the zygotes, without waiting for them.

    Args:
      workers: number of programs that run at a time.
      limits: job -> the time limits of each of its runs.
      memory_mb: address space that a program may allocate, in MiB.
      layers: the sandbox layers to activate, from `settings.LAYERS`.
      library_names: libraries that programs may use, from
        `libraries.LIBRARIES`; the caller has checked them.
      paths: folders from which zygotes import the libraries.
      start_zygote: creates a zygote; tests and benchmarks pass fakes.
    """
    self._workers, self._limits = workers, limits
    self._has_seccomp = "seccomp" in layers
    self._start_zygote = functools.partial(
      start_zygote,
      layers=layers,
      memory_mb=memory_mb,
      libraries=tuple(library_names),
      paths=tuple(paths),
    )
    self.layers: dict[str, bool] | None = None
    self.verdicts: list[tuple[int, Result]] = []
    self.replaced = 0
    zygote_seeds = hash_seeds.of_zygotes(workers)
    self._unstarted = len(zygote_seeds)
    self._false_starts = 0
    self._wanted: set[int] = set()
    # Comparisons run in zygotes of their own, so no program waits for them.
    # The first comparison starts these zygotes.
    self._compares = False
    self._comparison_seed = hash_seeds.of_comparisons()
    seeds = (*hash_seeds.HASH_SEEDS, self._comparison_seed)
    self._queue: RunQueue[_Run] = RunQueue(seeds)
    self._slots: FreeSlots[Zygote] = FreeSlots(seeds, SLOTS)
    self._deadlines: Deadlines[Zygote] = Deadlines()
    self._serial = 0
    # Runs of a dead zygote wait for its successor, because the other zygotes
    # may be stuck for the same reason.
    self._runs_to_retry: dict[Zygote, list[_Run]] = {}
    self._epoll = select.epoll()
    self._by_descriptor: dict[int, Zygote] = {}
    for seed in zygote_seeds:
      self._add_zygote(seed)

  def processes(self) -> list[int]:
    """Returns the process ids of the zygotes."""
    return [zygote.pid for zygote in self._zygotes()]

  def _zygotes(self) -> list[Zygote]:
    # Of a zygote's two descriptors, `read_fd` is always registered.
    pairs = self._by_descriptor.items()
    return [
      zygote for descriptor, zygote in pairs if descriptor == zygote.read_fd
    ]

  def watch(self, descriptor: int, events: int) -> None:
    """Makes `step` wait for another descriptor as well."""
    self._epoll.register(descriptor, events)

  def change_watch(self, descriptor: int, events: int) -> None:
    """Changes the events that `step` waits for on a watched descriptor."""
    self._epoll.modify(descriptor, events)

  def submit(self, number: int, job: Job) -> None:
    """Queues a job.

    Args:
      number: the caller's number for the job, repeated in `verdicts`.
      job: a valid job.
    """
    self._wanted.add(number)

    def is_wanted() -> bool:
      return number in self._wanted

    def finish(result: Result) -> None:
      if is_wanted():
        self._wanted.remove(number)
        self.verdicts.append((number, result))

    self._queue_runs(job, self._limits(job), finish, is_wanted)

  def cancel(self, number: int) -> None:
    """Drops a job; runs that have not started never will."""
    self._wanted.discard(number)

  def unfinished(self) -> int:
    """Returns how many jobs have no verdict yet."""
    return len(self._wanted)

  def step(self, wait_s: float) -> list[int]:
    """Starts waiting runs, waits for events, and handles them.

    Args:
      wait_s: the longest wait, in seconds.

    Returns:
      The watched descriptors that are ready (see `watch`).

    Raises:
      WorkerGone: zygotes do not start.
      RuntimeError: a sandbox layer does not hold.
    """
    self._dispatch()
    now = time.monotonic()
    wait_s = min(wait_s, self._deadlines.next() - now)
    others: list[int] = []
    for descriptor, _ in self._epoll.poll(max(0.0, wait_s)):
      zygote = self._by_descriptor.get(descriptor)
      if zygote is None:
        others.append(descriptor)
      elif descriptor == zygote.read_fd:
        self._read(zygote)
      else:
        self._flush(zygote)
    # Everything that zygotes wrote before `now` has been read by now, even if
    # this process was not scheduled for long.
    for zygote in self._deadlines.take_due(now):
      self._replace(zygote)
    return others

  def close(self) -> None:
    """Ends every zygote, and so all of their children."""
    for zygote in self._zygotes():
      zygote.end()
    self._epoll.close()

  def _add_zygote(self, seed: int) -> Zygote:
    zygote = self._start_zygote(seed)
    self._by_descriptor[zygote.read_fd] = zygote
    self._epoll.register(zygote.read_fd, select.EPOLLIN)
    self._deadlines.set(zygote, zygote.started_at + zygote.start_timeout_s)
    return zygote

  def _queue_runs(
    self,
    job: Job,
    limits: Limits,
    finish: Callable[[Result], None],
    is_wanted: Callable[[], bool],
  ) -> None:
    """Queues the runs of a job; `finish` receives its verdict."""
    seeds = hash_seeds.of_runs(job)
    if job.runs == 1:
      # A program under rules must not be able to distinguish grading (one run)
      # from validation, so it gets replaced clocks too.
      shift_s = 0 if job.forbidden else None
      self._queue.push(_Run(job, shift_s, limits, seeds[0], finish, is_wanted))
      return
    results: dict[int, Result] = {}
    step_s = clock_steps.draw()

    def finish_run(index: int, result: Result) -> None:
      results[index] = result
      if len(results) == job.runs:
        in_order = [results[index] for index in range(job.runs)]
        self._decide(in_order, finish, is_wanted)

    for index, seed in enumerate(seeds):
      finish_one = functools.partial(finish_run, index)
      shift_s = index * step_s
      self._queue.push(_Run(job, shift_s, limits, seed, finish_one, is_wanted))

  def _decide(
    self,
    results: list[Result],
    finish: Callable[[Result], None],
    is_wanted: Callable[[], bool],
  ) -> None:
    """Decides the verdict of a job whose runs have all ended."""
    settled = verdict.early_verdict(results)
    if settled is not None:
      finish(settled)
    elif comparison.is_short(results):
      finish(verdict.compared_verdict(results[0], *comparison.compare(results)))
    else:
      self._compare(results, finish, is_wanted)

  def _compare(
    self,
    results: list[Result],
    finish: Callable[[Result], None],
    is_wanted: Callable[[], bool],
  ) -> None:
    """Queues a run that compares long outputs."""
    if not self._compares:
      self._compares = True
      for _ in range(-(-self._workers // WORKERS_PER_COMPARISON)):
        self._add_zygote(self._comparison_seed)

    def finish_comparison(result: Result) -> None:
      finish(verdict.compared_verdict(results[0], *comparison.read(result)))

    run = _Run(
      comparison.job(results),
      None,
      comparison.LIMITS,
      self._comparison_seed,
      finish_comparison,
      is_wanted,
    )
    self._queue.push(run)

  def _dispatch(self) -> None:
    """Assigns queued runs to free slots, in order as far as seeds allow."""
    full: set[int] = set()
    while (run := self._queue.oldest(full)) is not None:
      if not run.is_wanted():
        self._queue.remove_oldest(run)
      elif (zygote := self._slots.take(run.seed)) is None:
        full.add(run.seed)
      else:
        self._queue.remove_oldest(run)
        self._start(zygote, run)

  def _start(self, zygote: Zygote, run: _Run) -> None:
    self._serial += 1
    run.tries += 1
    if not zygote.in_flight:
      zygote.last_activity = time.monotonic()
    zygote.in_flight[self._serial] = run
    had_unsent = zygote.has_unsent()
    job, limits = run.next_part()
    zygote.send(
      frames.pack_request(
        self._serial,
        limits,
        job.code,
        job.inputs,
        job.entry,
        job.forbidden,
        job.per_call,
        run.shift_s,
      )
    )
    if zygote.has_unsent() and not had_unsent:
      self._by_descriptor[zygote.write_fd] = zygote
      self._epoll.register(zygote.write_fd, select.EPOLLOUT)
    self._update_zygote(zygote)

  def _update_zygote(self, zygote: Zygote) -> None:
    """Updates a zygote's deadline and slots after its runs have changed."""
    deadline = (
      zygote.last_activity + HEARTBEAT_TIMEOUT_S
      if zygote.in_flight
      else math.inf
    )
    self._deadlines.set(zygote, deadline)
    self._slots.put(zygote, len(zygote.in_flight))

  def _flush(self, zygote: Zygote) -> None:
    zygote.flush()
    if not zygote.has_unsent():
      self._epoll.unregister(zygote.write_fd)
      del self._by_descriptor[zygote.write_fd]

  def _read(self, zygote: Zygote) -> None:
    is_new = zygote.layers is None
    try:
      replies = zygote.receive()
    except WorkerGone:
      self._replace(zygote)
      return
    if is_new and zygote.layers is not None:
      self._on_started(zygote, zygote.layers)
    for number, seconds, cpu_s, slept_s, ending, payload in replies:
      run = zygote.in_flight.pop(number)
      if verdict.asks_for_split(ending, payload) and not run.is_split:
        run.is_split, run.tries = True, 0
        self._queue.push_first(run)
        continue
      job, _ = run.next_part()
      part = verdict.read_reply(job, seconds, cpu_s, ending, payload)
      # No program can kill itself: another process killed it, or the kernel
      # ran out of memory.
      if part.is_lost and run.tries < MAX_TRIES:
        self._queue.push_first(run)
      else:
        if run.is_split:
          run.slept_s += slept_s
        self._end_part(run, part)
    self._update_zygote(zygote)

  def _end_part(self, run: _Run, part: Result) -> None:
    """Finishes a run after its last part; otherwise queues the next one."""
    result = run.end_part(part)
    if result is not None:
      run.finish(result)
    else:
      self._queue.push_first(run)

  def _on_started(self, zygote: Zygote, layers: dict[str, bool]) -> None:
    """Starts waiting runs on a new zygote, and the self-test if it is last."""
    self._update_zygote(zygote)
    self._false_starts = 0
    for run in self._runs_to_retry.pop(zygote, []):
      self._start(zygote, run)
    self._unstarted -= 1
    if not self._unstarted:
      self._test_sandbox(layers)

  def _replace(self, dead: Zygote) -> None:
    """Starts a zygote in place of a dead one, and retries its runs.

    Raises:
      WorkerGone: the pool's first zygotes did not all start, or too many in a
        row died while starting.
    """
    self._slots.remove(dead)
    self._deadlines.set(dead, math.inf)
    for descriptor in (dead.read_fd, dead.write_fd):
      if self._by_descriptor.pop(descriptor, None):
        self._epoll.unregister(descriptor)
    dead.end()
    if self._unstarted > 0:
      raise WorkerGone("an executor zygote did not start")
    self._false_starts += dead.layers is None
    if self._false_starts > MAX_FALSE_STARTS:
      raise WorkerGone("executor zygotes keep dying while they start")
    self.replaced += 1
    runs = self._runs_to_retry.pop(dead, [])
    for run in dead.in_flight.values():
      if run.tries < MAX_TRIES:
        runs.append(run)
      else:
        lost = verdict.failure(run.job, "error", WORKER_DIED, is_lost=True)
        self._end_part(run, lost)
    self._runs_to_retry[self._add_zygote(dead.seed)] = runs

  def _test_sandbox(self, layers: dict[str, bool]) -> None:
    """Runs programs that the sandbox must stop, then sets `layers`."""
    found = layers | {"seccomp": self._has_seccomp}
    jobs = selftest.jobs()
    left = len(jobs)

    def finish(result: Result) -> None:
      nonlocal left
      left -= 1
      found[f"denies_{result.id}"] = selftest.is_denied(result)
      if self._has_seccomp and not selftest.is_denied(result):
        raise RuntimeError(
          f"executor self-test: {result.id} gave {result}; expected it to be "
          "denied. On a system without seccomp, set unsafe=True."
        )
      if not left:
        self.layers = found

    for job in jobs:
      self._queue_runs(job, selftest.limits(job), finish, lambda: True)
