"""Executor jobs that are shared by the hosts of a run.

A job's result is its verdict: a grade, a measurement or a script's output.
Every host submits the same jobs in the same order. With n hosts, host i runs
every n-th job, and they exchange verdicts, so that all hosts get all verdicts
at the same time. `submit` starts a job and returns a future of its verdict,
which `poll` completes. The event loop polls between device calls; `wait_all`
polls until every job is done.
"""

import collections
import concurrent.futures
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

import jax

from azr_jax.executor import Executor
from azr_jax.parallel import messages
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.hosts import Hosts

Out = TypeVar("Out")
# Starts a job on this host's executor; its verdict must fit a message.
Start = Callable[[Executor], "Future[Out]"]
_POLL_S = 0.05  # Pause between exchanges while only other hosts have jobs.


_wait = jax.profiler.annotate_function(
  concurrent.futures.wait, name="wait_for_verdicts"
)


class SharedJobs:
  """Jobs in flight on all hosts of a run. Not thread-safe."""

  def __init__(
    self,
    executor: Executor | None,
    hosts: Hosts,
    clock: DecodeClock | None = None,
    now: Callable[[], float] = time.monotonic,
  ):
    """Creates an empty set of jobs.

    Args:
      executor: this host's executor; None if the jobs need none.
      hosts: the processes of the run.
      clock: decides when verdicts are used; None uses them as soon as they
        exist.
      now: a clock in seconds, for metrics.
    """
    self._executor: Any = executor
    self._hosts = hosts
    self._now = now
    self.clock = clock or DecodeClock()
    self._due: dict[int, int] = {}
    self._submitted = 0
    # By submission index; a job is removed once its verdict is exchanged.
    self._pending: dict[int, tuple[Hashable, Future[Any]]] = {}
    self._local_jobs: dict[int, Future[Any]] = {}
    self._running: set[int] = set()
    self._totals: dict[str, float] = collections.defaultdict(float)
    self._counted = self._counters()

  @property
  def pending(self) -> int:
    """Number of jobs, over all hosts, without an exchanged verdict."""
    return len(self._pending)

  def submit(self, start: "Start[Out]", name: Hashable = None) -> "Future[Out]":
    """Makes one host start a job.

    Args:
      start: starts the job on the given executor.
      name: the key of the verdict in the result of `poll`.

    Returns:
      A future, which `poll` or `wait_all` completes in the caller's thread.
    """
    number = self._submitted
    self._submitted += 1
    if number % self._hosts.count == self._hosts.index:
      own: Future[Out] = Future()
      try:
        own = start(self._executor)
      except Exception as error:  # noqa: BLE001 - the exchange tells every host.
        own.set_exception(error)
      self._local_jobs[number] = own
      if not own.done():  # Jobs that finish at once need no process.
        self._running.add(number)
        self._totals["started"] += 1
    verdict: Future[Out] = Future()
    self._pending[number] = name, verdict
    if self.clock.delay_calls is not None:
      self._due[number] = self.clock.calls + self.clock.delay_calls
    return verdict

  def wait_all(self) -> None:
    """Waits for every job and completes the futures of other hosts' jobs.

    Raises:
      RuntimeError: a job failed to run on another host. This host's own failure
        is raised unchanged.
      TimeoutError: a host did not arrive; see `Hosts.barrier`.
    """
    while self._pending:
      self.poll(wait=True)

  def poll(self, wait: bool) -> dict[Any, Any]:
    """Returns the verdicts of finished jobs by name, each once.

    All hosts get the same verdicts in the same call.

    Args:
      wait: whether to block until at least one job is done, if any is pending.

    Raises:
      RuntimeError, TimeoutError: as for `wait_all`.
    """
    if self.clock.delay_calls is not None:
      return self._take_due(wait)
    verdicts: dict[Any, Any] = {}
    start = self._now()
    while self._pending and not verdicts:
      if wait and self._local_jobs:
        _wait(
          self._local_jobs.values(),
          None if self._hosts.count == 1 else _POLL_S,
          concurrent.futures.FIRST_COMPLETED,
        )
      elif wait:
        time.sleep(_POLL_S)
      done = [number for number, job in self._local_jobs.items() if job.done()]
      verdicts = self._exchange(done)
      self._totals["early"] += 0 if wait else len(self._running & {*done})
      self._running -= {*done}
      if not wait:
        break
    self._totals["wait_s"] += self._now() - start if wait else 0.0
    return verdicts

  def _take_due(self, wait: bool) -> dict[Any, Any]:
    """Waits for the jobs that are due and returns their verdicts.

    Args:
      wait: whether the earliest jobs count as due if none is.
    """
    last = self.clock.calls
    if wait and self._due:
      last = max(last, min(self._due.values()))
    due = [number for number, call in self._due.items() if call <= last]
    if not due:
      return {}
    for number in due:
      del self._due[number]
    mine = [number for number in due if number in self._local_jobs]
    start = self._now()
    done = [number for number in mine if self._local_jobs[number].done()]
    _wait([self._local_jobs[number] for number in mine])
    self._totals["wait_s"] += self._now() - start
    self._totals["early"] += len(self._running & {*done})
    self._running -= {*mine}
    return self._exchange(mine)

  def _exchange(self, numbers: list[int]) -> dict[Hashable, Any]:
    """Exchanges the verdicts of each host's jobs with all hosts."""
    mine: dict[int, Any] = {}
    error = None
    try:
      mine = {
        number: self._local_jobs.pop(number).result() for number in numbers
      }
    except Exception as caught:  # noqa: BLE001 - every host must hear of it.
      error = caught
    everyone = [mine]
    if self._hosts.count > 1:
      everyone = self._gather(mine, error)
    elif error is not None:
      raise error
    verdicts: dict[Hashable, Any] = {}
    for theirs in everyone:
      for number, verdict in theirs.items():
        name, future = self._pending.pop(number)
        verdicts[name] = verdict
        future.set_result(verdict)
    return verdicts

  def _gather(
    self, mine: dict[int, Any], error: Exception | None
  ) -> list[dict[int, Any]]:
    """Returns every host's verdicts, by host index."""
    try:
      message = messages.dumps((repr(error) if error else "", mine))
    except TypeError as unknown:  # The other hosts wait for a message.
      error = error or unknown
      message = messages.dumps((repr(error), {}))
    parts = [
      messages.loads(part)
      for part in self._hosts.all_gather("verdicts", message)
    ]
    for index, (failure, _) in enumerate(parts):
      if failure and error is None:
        raise RuntimeError(f"{self._hosts.name(index)} failed: {failure}")
    if error is not None:
      raise error
    return [verdicts for _, verdicts in parts]

  def _counters(self) -> dict[str, int]:
    return self._executor.counters() if self._executor is not None else {}

  def metrics(self) -> dict[str, float]:
    """Returns the metrics of all hosts since the last call.

    They are the executor's verdicts by status; `time/verdict_wait`, the
    seconds that the slowest host waited for jobs with nothing else to do; and
    `time/verdict_early_fraction`, the fraction of jobs that were done before
    they were waited for.
    """
    if (
      self.clock.delay_calls is not None
    ):  # Waiting makes the counts independent of how fast jobs run.
      concurrent.futures.wait(self._local_jobs.values())
    counted = self._counters()
    mine = {
      "counts": {n: counted[n] - self._counted.get(n, 0) for n in counted},
      "totals": dict(self._totals),
    }
    self._counted = counted
    self._totals.clear()
    every = [
      messages.loads(part)
      for part in self._hosts.all_gather("counters", messages.dumps(mine))
    ]
    metrics = {
      f"executor/{name}": float(sum(host["counts"][name] for host in every))
      for name in counted
    }
    totals = [host["totals"] for host in every]
    started = sum(total.get("started", 0) for total in totals)
    early = sum(total.get("early", 0) for total in totals)
    metrics["time/verdict_early_fraction"] = early / max(started, 1)
    metrics["time/verdict_wait"] = max(
      total.get("wait_s", 0.0) for total in totals
    )
    return metrics
