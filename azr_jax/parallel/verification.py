"""Verification that overlaps with sampling and is split between hosts.

The life of a round: while completions come, each is handed in by `submit`;
one host starts it, in turn; when the last has come, `settle` waits for this
host's part and exchanges the outcomes, so that every host holds them all.
"""

import collections
import pickle
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from azr_jax.executor import Executor
from azr_jax.parallel.hosts import Hosts

Out = TypeVar("Out")


class Verification:
  """The outcomes of a run's verifications, the same on every host.

  Every host must hand in the same, in the same order. Not thread-safe.
  """

  def __init__(self, executor: Executor, hosts: Hosts):
    self._executor = executor
    self._hosts = hosts
    self._round: list[Future[Any]] = []
    self._started: list[Future[Any]] = []
    self._totals: dict[str, float] = collections.defaultdict(float)
    self._counted = executor.counters()

  def submit(self, start: Callable[[Executor], "Future[Out]"]) -> "Future[Out]":
    """Has one host start a verification; its future is done by `settle`.

    Args:
      start: starts it; its outcome must be a value that can be pickled.
    """
    future: Future[Out] = Future()
    if len(self._round) % self._hosts.count == self._hosts.index:
      try:
        future = start(self._executor)
      except Exception as error:  # noqa: BLE001 - `settle` tells every host.
        future.set_exception(error)
      if not future.done():  # Nothing runs for a reply that has no program.
        self._started.append(future)
    self._round.append(future)
    return future

  def settle(self) -> None:
    """Waits for the round's verifications and completes those of others.

    Raises:
      RuntimeError: a verification failed, here or on another host.
      TimeoutError: a host did not come; see `Hosts.barrier`.
    """
    everyone, self._round = self._round, []
    own = everyone[self._hosts.index :: self._hosts.count]
    start = time.monotonic()
    self._totals["early"] += sum(future.done() for future in self._started)
    self._totals["started"] += len(self._started)
    self._started = []
    error, mine = None, b""
    try:
      # Between processes of one run, and of texts that were read in them.
      mine = pickle.dumps([future.result() for future in own])
    except Exception as caught:  # noqa: BLE001 - every host must hear of it.
      error = caught
    self._totals["wait_s"] += time.monotonic() - start
    self._hosts.raise_on_all("verification", error)
    parts = self._hosts.gather("verdicts", mine)
    for index, part in enumerate(parts):
      if index == self._hosts.index:
        continue
      theirs = everyone[index :: self._hosts.count]
      for future, outcome in zip(theirs, pickle.loads(part), strict=True):
        future.set_result(outcome)

  def metrics(self) -> dict[str, float]:
    """What was verified since the last call, on all hosts.

    Executor verdicts by status; `time/verification_wait`, seconds of waiting
    after the ends of sampling, of the slowest host; and
    `time/verified_early_share`, the share of what the executor was given that
    was done before.
    """
    counted = self._executor.counters()
    mine = {
      "counts": {n: counted[n] - self._counted.get(n, 0) for n in counted},
      "totals": dict(self._totals),
    }
    self._counted = counted
    self._totals.clear()
    every = [
      pickle.loads(part)
      for part in self._hosts.gather("counters", pickle.dumps(mine))
    ]
    metrics = {
      f"executor/{name}": float(sum(one["counts"][name] for one in every))
      for name in counted
    }
    totals = [one["totals"] for one in every if one["totals"]]
    if totals:
      started = sum(total["started"] for total in totals)
      early = sum(total["early"] for total in totals)
      metrics["time/verified_early_share"] = early / max(started, 1)
      metrics["time/verification_wait"] = max(t["wait_s"] for t in totals)
    return metrics
