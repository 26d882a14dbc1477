"""The pool of one machine: schedules jobs over a set of zygotes.

The life of a job:
1. `Pending.submit` queues it and wakes the pool's thread;
2. the thread gives each of its runs to the least busy zygote of its hash seed
   (`hash_seeds.py`) with a free slot;
3. replies are read as they come. A zygote that dies, or has given no sign of
   life for `SILENT_S`, is replaced and its runs are tried once more;
4. when all runs of a job have ended, its verdict is decided here, in the
   trusted process. Only text came back, and it is parsed, never evaluated.
   Long values are compared in another thread (`deciding.py`).

Only the pool's thread touches zygotes and runs; others use `pending.py`.
"""

import collections
import dataclasses
import math
import os
import select
import threading
import time
from collections.abc import Sequence

from azr_jax.executor import frames, hash_seeds, libraries, selftest, verdict
from azr_jax.executor.deciding import Decider
from azr_jax.executor.job import Result
from azr_jax.executor.pending import Pending, Task
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.executor.worker import WorkerGone, Zygote

SLOTS = 2  # Children at a time per zygote, so that a loop blocks no other job.
# A zygote with runs that was not heard for so long counts as dead. It gives a
# sign of life every second, so this depends on no limit of a program.
SILENT_S = 10.0
MAX_TRIES = 2
MAX_FALSE_STARTS = 5  # Zygotes in a row that die before they have started.
# Runs that may wait for a zygote of their seed while later runs overtake them.
MAX_OVERTAKEN = 64


@dataclasses.dataclass(eq=False)
class _Run:
  """One execution of a job.

  Attributes:
    task: the job, and who waits for it.
    index: its number among the task's runs.
    seed: the hash seed that it needs.
    results: those of all the task's runs, by index; shared between the runs.
    tries: how often it was sent to a zygote.
    born_after: it goes only to a zygote that was born later. A run whose
      zygote was lost waits for a new one, because the others may be stuck for
      the same reason.
  """

  task: Task
  index: int
  seed: int
  results: dict[int, Result]
  tries: int = 0
  born_after: float = 0.0


class Pool:
  """The pool of this machine.

  Attributes:
    pending: the unfinished jobs.
  """

  def __init__(
    self, settings: ExecutorSettings, library_names: Sequence[str] = ()
  ):
    """Starts the zygotes and tests that their sandbox holds.

    Args:
      settings: how many zygotes, their limits, and their sandbox layers.
      library_names: libraries that programs may use, of
        `libraries.LIBRARIES`.

    Raises:
      ValueError: a library is unknown or not installed.
      RuntimeError: a zygote does not start or a sandbox layer does not hold.
    """
    libraries.check(library_names)
    self._settings = settings
    self._libraries = tuple(library_names)
    self.pending = Pending(self._wake)
    self._decider = Decider(self.pending)
    self._queue: collections.deque[_Run] = collections.deque()
    self._serial = 0
    self._false_starts = 0
    self._zygotes = [
      self._new_zygote(seed) for seed in hash_seeds.of_zygotes(settings.workers)
    ]
    try:
      layers = [zygote.wait_for_start() for zygote in self._zygotes]
    except WorkerGone:
      self._end_zygotes()
      raise
    self._wake_reader, self._wake_writer = os.pipe()
    os.set_blocking(self._wake_reader, False)
    os.set_blocking(self._wake_writer, False)
    self._poll = select.poll()
    self._poll.register(self._wake_reader, select.POLLIN)
    for zygote in self._zygotes:
      self._poll.register(zygote.reading, select.POLLIN)
    self._thread = threading.Thread(
      target=self._work, name="executor", daemon=True
    )
    self._thread.start()
    try:
      self._layers = layers[0] | self._test_sandbox()
    except BaseException:
      self.close()
      raise

  def layers(self) -> dict[str, bool]:
    """Returns which sandbox layers are active and what the self-test denied."""
    return dict(self._layers)

  def processes(self) -> list[int]:
    """Returns the process ids of the zygotes."""
    return [zygote.pid for zygote in self._zygotes]

  def close(self) -> None:
    """Ends every process; unfinished jobs are cancelled."""
    self.pending.close()
    self._thread.join()

  def _wake(self) -> None:
    try:
      os.write(self._wake_writer, b"!")
    except BlockingIOError:  # The pipe is full, so the thread will wake.
      pass

  def _work(self) -> None:
    """Runs in the pool's thread until the executor is closed."""
    error: BaseException | None = None
    try:
      while not self.pending.closed:
        self._dispatch()
        self._attend()
    except Exception as failure:  # noqa: BLE001 - the waiters must hear of it.
      error = failure
    finally:
      self.pending.end(error)
      self._decider.close()
      self._end_zygotes()
      os.close(self._wake_reader)
      os.close(self._wake_writer)

  def _new_zygote(self, seed: int) -> Zygote:
    settings = self._settings
    return Zygote(seed, settings.walls(), settings.memory_mb, self._libraries)

  def _end_zygotes(self) -> None:
    for zygote in self._zygotes:
      zygote.end()

  def _dispatch(self) -> None:
    """Gives queued runs to free slots, in order as far as seeds allow it."""
    free = sum(SLOTS - len(zygote.busy) for zygote in self._zygotes)
    waiting: list[_Run] = []
    while free > 0 and len(waiting) < MAX_OVERTAKEN:
      run = self._next_run()
      if run is None:
        break
      if self.pending.dropped(run.task):
        continue
      zygote = self._free_zygote(run)
      if zygote is None:
        waiting.append(run)
      else:
        self._start(zygote, run)
        free -= 1
    self._queue.extendleft(reversed(waiting))

  def _next_run(self) -> _Run | None:
    if not self._queue:
      task = self.pending.take()
      if task is None:
        return None
      results: dict[int, Result] = {}
      for index, seed in enumerate(hash_seeds.of_runs(task.job)):
        self._queue.append(_Run(task, index, seed, results))
    return self._queue.popleft()

  def _free_zygote(self, run: _Run) -> Zygote | None:
    candidates = [
      zygote
      for zygote in self._zygotes
      if zygote.layers is not None
      and zygote.born >= run.born_after
      and run.seed == zygote.seed
    ]
    zygote = min(candidates, key=lambda z: len(z.busy), default=None)
    return zygote if zygote and len(zygote.busy) < SLOTS else None

  def _start(self, zygote: Zygote, run: _Run) -> None:
    self._serial += 1
    run.tries += 1
    if not zygote.busy:
      zygote.heard = time.monotonic()
    zygote.busy[self._serial] = run
    job = run.task.job
    zygote.send(
      frames.pack_request(
        self._serial,
        run.task.limits,
        job.code,
        job.inputs,
        job.entry,
        job.forbidden,
      )
    )
    if zygote.has_unsent():
      self._poll.register(zygote.writing, select.POLLOUT)

  def _attend(self) -> None:
    """Waits for replies, new jobs or a deadline, and handles them."""
    now = time.monotonic()
    wait_s = max(0.0, min(map(_deadline, self._zygotes)) - now)
    wait_ms = None if wait_s == math.inf else wait_s * 1000 + 1
    ready = {descriptor for descriptor, _ in self._poll.poll(wait_ms)}
    if self._wake_reader in ready:
      os.read(self._wake_reader, 4096)
    # The poll came after `now`, so what a zygote wrote until then is ready,
    # however long the trainer kept this thread from running.
    for index, zygote in enumerate(self._zygotes):
      if zygote.writing in ready:
        zygote.flush()
        if not zygote.has_unsent():
          self._poll.unregister(zygote.writing)
      try:
        if zygote.reading in ready:
          self._read_replies(zygote)
        elif _deadline(zygote) < now:
          raise WorkerGone("an executor zygote does not answer")
      except WorkerGone:
        self._replace(index)

  def _read_replies(self, zygote: Zygote) -> None:
    for number, seconds, cpu_s, seen, payload in zygote.receive():
      run = zygote.busy.pop(number)
      job = run.task.job
      result = verdict.read_reply(job, seconds, cpu_s, seen, payload)
      # No program can kill itself: another process did, or memory was short.
      if result.error == verdict.KILLED and run.tries < MAX_TRIES:
        self._queue.appendleft(run)
      else:
        self._finish(run, result)

  def _finish(self, run: _Run, result: Result) -> None:
    """Decides the job's verdict after its last run."""
    run.results[run.index] = result
    if len(run.results) == run.task.job.runs:
      in_order = [run.results[index] for index in range(run.task.job.runs)]
      self._decider.decide(run.task, in_order)

  def _replace(self, index: int) -> None:
    """Starts a zygote in place of a dead one, whose runs are tried again.

    Raises:
      WorkerGone: too many zygotes in a row did not start.
    """
    dead = self._zygotes[index]
    self._poll.unregister(dead.reading)
    if dead.has_unsent():
      self._poll.unregister(dead.writing)
    dead.end()
    for run in dead.busy.values():
      if run.tries < MAX_TRIES:
        run.born_after = time.monotonic()
        self._queue.appendleft(run)
      else:
        job = run.task.job
        self._finish(run, verdict.failure(job, "error", "WorkerDied"))
    self._false_starts = self._false_starts + 1 if dead.layers is None else 0
    if self._false_starts > MAX_FALSE_STARTS:
      raise WorkerGone("executor zygotes die before they have started")
    fresh = self._zygotes[index] = self._new_zygote(dead.seed)
    self._poll.register(fresh.reading, select.POLLIN)

  def _test_sandbox(self) -> dict[str, bool]:
    """Runs programs that must fail; returns what was denied, by name.

    Raises:
      RuntimeError: a program succeeded, although seccomp was asked for.
    """
    futures = [
      self.pending.submit([job], selftest.limits(job))[0]
      for job in selftest.jobs()
    ]
    seccomp = "seccomp" in self._settings.walls()
    layers = {"seccomp": seccomp}
    for result in [future.result() for future in futures]:
      layers[f"denies_{result.id}"] = selftest.held(result)
      if seccomp and not selftest.held(result):
        raise RuntimeError(
          f"executor self-test: {result.id} gave {result}; expected it to be "
          "denied. On a system without seccomp, ask for unsafe=True by name."
        )
    self.pending.forget_counts()
    return layers


def _deadline(zygote: Zygote) -> float:
  """Returns when a zygote that gives no sign of life counts as dead."""
  if zygote.layers is None:
    return zygote.born + zygote.start_s
  return zygote.heard + SILENT_S if zygote.busy else math.inf
