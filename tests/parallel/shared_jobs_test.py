"""Jobs shared by three hosts, which are threads here."""

import concurrent.futures
import gc
import threading
import weakref
from concurrent.futures import Future
from typing import Any

import pytest
from typed import stand_in

from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs

HOSTS = 3


class ThreadHosts(Hosts):
  """One of several hosts in this process, which exchange through a list."""

  def __init__(self, index, barrier, parts):
    self.index, self.count = index, HOSTS
    self._barrier, self._parts = barrier, parts

  def all_gather(self, what, mine):
    del what
    self._parts[self.index] = mine
    self._barrier.wait(20)
    found = list(self._parts)
    self._barrier.wait(20)
    return found

  def name(self, index):
    return f"process {index}"


def on_all_hosts(play) -> list[Any]:
  """Returns the result of each host's thread."""
  barrier, parts = threading.Barrier(HOSTS), [b""] * HOSTS
  with concurrent.futures.ThreadPoolExecutor(HOSTS) as pool:
    hosts = [ThreadHosts(i, barrier, parts) for i in range(HOSTS)]
    jobs = [pool.submit(play, SharedJobs(None, host), host) for host in hosts]
    return [job.exception(30) or job.result() for job in jobs]


def done_later(value, delay):
  future = Future()
  threading.Timer(delay, future.set_result, [value]).start()
  return future


def test_every_host_gets_every_outcome_once_at_the_same_call():
  started = []

  def play(outcomes, host):
    for number in range(7):

      def start(executor, number=number):
        del executor
        started.append((number, host.index))
        return done_later(number * 10, 0.05 * (number % 3))

      outcomes.submit(start, (number, 0))
    calls = []
    while outcomes.pending:
      calls.append(outcomes.poll(wait=True))
    return calls

  found = on_all_hosts(play)
  assert found[0] == found[1] == found[2]
  assert all(found[0])
  merged = [pair for call in found[0] for pair in call.items()]
  assert sorted(merged) == [((n, 0), n * 10) for n in range(7)]
  assert sorted(started) == [(n, n % HOSTS) for n in range(7)]


@pytest.mark.parametrize("when", ["at the start", "later"])
def test_a_job_that_fails_raises_on_every_host(when):
  def play(outcomes, host):
    del host

    def start(executor):
      del executor
      if when == "at the start":
        raise OSError("no pool")
      future = Future()
      future.set_exception(OSError("no pool"))
      return future

    outcomes.submit(start, (0, 0))
    return outcomes.poll(wait=True)

  found = on_all_hosts(play)
  assert isinstance(found[0], OSError)
  for other in found[1:]:
    assert isinstance(other, RuntimeError)
    assert "process 0 failed: OSError('no pool')" in str(other)


def test_poll_need_not_wait():
  def play(outcomes, host):
    outcomes.submit(lambda executor: Future(), (0, 0))
    outcomes.submit(lambda executor: done_later(5, 0.0), (1, 0))
    taken = {}
    while not taken:
      taken = outcomes.poll(wait=False)
    assert outcomes.pending == 1
    outcomes.submit(lambda executor: done_later(host.index, 0.0), (2, 0))
    return taken, outcomes.poll(wait=True)

  found = on_all_hosts(play)
  assert found == [({(1, 0): 5}, {(2, 0): 2})] * HOSTS


def test_an_outcome_that_was_polled_is_not_kept():
  class Outcome:
    pass

  jobs = SharedJobs(None, stand_in(Hosts, index=0, count=1))

  def play():
    future = Future()
    jobs.submit(lambda _: future, "name")
    future.set_result(Outcome())
    return [weakref.ref(outcome) for outcome in jobs.poll(wait=True).values()]

  [kept] = play()
  gc.collect()
  assert kept() is None


def test_the_slowest_host_gives_the_seconds_of_waiting():
  def play(_, host):
    times = iter((1.0, 4.5 + host.index))
    jobs = SharedJobs(None, host, now=times.__next__)
    jobs.submit(lambda executor: done_later(7, 0.0), "name")
    assert jobs.poll(wait=True) == {"name": 7}
    return jobs.metrics()["time/verdict_wait"]

  assert on_all_hosts(play) == [5.5] * HOSTS


@pytest.mark.parametrize("delay", [1, 3])
def test_outcomes_are_taken_when_they_are_due_and_not_before(delay):
  """A job's duration does not matter, so two runs take it at the same call."""
  clock = DecodeClock(delay)
  jobs = SharedJobs(None, stand_in(Hosts, index=0, count=1), clock)
  jobs.submit(lambda _: done_later("slow", 0.3), "slow")
  taken = [jobs.poll(wait=False)]
  clock.calls += 1
  jobs.submit(lambda _: done_later("quick", 0.0), "quick")
  for _ in range(delay):
    taken.append(jobs.poll(wait=False))
    clock.calls += 1
  taken.append(jobs.poll(wait=False))
  due = [{} for _ in range(delay + 2)]
  due[delay], due[delay + 1] = {"slow": "slow"}, {"quick": "quick"}
  assert taken == due
  assert jobs.pending == 0 and jobs.poll(wait=True) == {}


def test_the_next_outcomes_are_due_where_nothing_else_is_done():
  clock = DecodeClock(5)
  jobs = SharedJobs(None, stand_in(Hosts, index=0, count=1), clock)
  jobs.submit(lambda _: done_later(1, 0.1), "first")
  clock.calls += 1
  jobs.submit(lambda _: done_later(2, 0.0), "second")
  assert jobs.poll(wait=True) == {"first": 1}
  assert jobs.poll(wait=True) == {"second": 2}
