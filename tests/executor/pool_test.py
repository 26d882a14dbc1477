"""Tests of a pool in this process: lost zygotes, dropped jobs, long values."""

import contextlib
import os
import signal
import time

import pytest

from azr_jax.executor import Job, comparison
from azr_jax.executor.pool import pool as pool_lib
from azr_jax.executor.pool.worker import WorkerGone, Zygote
from azr_jax.executor.settings import ExecutorSettings
from tests.executor.process_table import children_of, wait_until

DOUBLE = "def f(x):\n  return x * 2"
LOOP = "def f(x):\n  while True: pass"
# 5,000 keys whose order depends on the hash seed.
ANY_ORDER = "def f(x):\n  return {k: 0 for k in {str(i) for i in range(x)}}"
IN_ORDER = "def f(x):\n  return list({str(i) for i in range(x)})"


@contextlib.contextmanager
def started(timeout_s=0.3, start_zygote=Zygote):
  """Yields a pool of one worker that has passed its self-test."""
  settings = ExecutorSettings(timeout_s=timeout_s)
  pool = pool_lib.ZygotePool(
    1, settings.limits, 256, settings.layers(), start_zygote=start_zygote
  )
  try:
    step_until(pool, lambda: pool.layers is not None)
    yield pool
  finally:
    pool.close()


def step_until(pool, condition, seconds=60.0):
  end = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < end
    pool.step(0.1)


def submit(pool, *jobs):
  for number, job in enumerate(jobs):
    pool.submit(number, job)


def results(pool, count):
  """Returns the verdicts of `count` jobs, in the order of their numbers."""
  step_until(pool, lambda: len(pool.verdicts) == count)
  return [result for _, result in sorted(pool.verdicts)]


def run(pool, *jobs):
  submit(pool, *jobs)
  return results(pool, len(jobs))


@pytest.fixture
def pool():
  with started() as pool:
    yield pool


def test_a_cancelled_job_frees_its_place(pool):
  # Two loops occupy all zygotes; one of the six waiting jobs is cancelled.
  loops = [Job("loop", LOOP, (str(x),), runs=3) for x in range(2)]
  quick = [Job("quick", DOUBLE, (str(x),), runs=2) for x in range(6)]
  submit(pool, *loops, *quick)
  pool.step(0.0)
  pool.cancel(3)
  step_until(pool, lambda: len(pool.verdicts) == 7)
  assert 3 not in dict(pool.verdicts)
  assert {r.status for n, r in pool.verdicts if n < 2} == {"timeout"}
  assert {r.status for n, r in pool.verdicts if n > 3} == {"ok"}


def test_zygotes_that_never_start_end_the_pool(monkeypatch, pool):
  monkeypatch.setattr("azr_jax.executor.pool.worker._ZYGOTE", "/nonexistent.py")
  submit(pool, Job("1", LOOP, ("1",)))
  for pid in pool.processes():
    os.kill(pid, signal.SIGKILL)
  with pytest.raises(WorkerGone, match="while they start"):
    results(pool, 1)


def test_a_pool_whose_zygotes_do_not_start_at_all_ends(monkeypatch):
  monkeypatch.setattr("azr_jax.executor.pool.worker._ZYGOTE", "/nonexistent.py")
  with pytest.raises(WorkerGone, match="did not start"):
    with started():
      pass


@pytest.mark.parametrize("size", [1, 10**6])
def test_a_stopped_zygote_is_replaced_and_blocks_nobody(monkeypatch, size):
  monkeypatch.setattr(pool_lib, "HEARTBEAT_TIMEOUT_S", 1.5)
  with started() as pool:
    stopped = pool.processes()
    for pid in stopped:
      os.kill(pid, signal.SIGSTOP)
    job = Job("1", DOUBLE + "\n#" + "x" * size, ("1",))
    [result] = run(pool, job)
    assert result.outputs == ("2",)
    assert pool.replaced == 1
    assert len(set(pool.processes()) & set(stopped)) == 2


def test_the_kernels_limit_of_a_late_zygote_is_a_timeout(monkeypatch):
  monkeypatch.setattr(pool_lib, "HEARTBEAT_TIMEOUT_S", 600.0)
  with started(timeout_s=0.2) as pool:
    submit(pool, Job("1", LOOP, ("1",)))
    step_until(pool, lambda: children_of(pool.processes()))
    zygotes = pool.processes()
    for pid in zygotes:
      os.kill(pid, signal.SIGSTOP)
    assert wait_until(lambda: not children_of(zygotes), 60.0)
    for pid in zygotes:
      os.kill(pid, signal.SIGCONT)
    [result] = results(pool, 1)
    assert pool.replaced == 0
  assert (result.status, result.error) == ("timeout", "JobTimeout")
  assert result.cpu_s > 1.0


def test_a_zygote_gives_signs_of_life_while_a_program_runs(monkeypatch):
  monkeypatch.setattr(pool_lib, "HEARTBEAT_TIMEOUT_S", 1.5)
  with started(timeout_s=2.0) as pool:
    [result] = run(pool, Job("1", LOOP, ("1",)))
    assert pool.replaced == 0
  assert result.status == "timeout" and result.seconds > 1.5


def test_a_pool_that_was_kept_from_running_loses_no_zygote(monkeypatch):
  monkeypatch.setattr(pool_lib, "HEARTBEAT_TIMEOUT_S", 1.5)
  with started(timeout_s=2.5) as pool:
    submit(pool, Job("1", LOOP, ("1",)))
    step_until(pool, lambda: children_of(pool.processes()))
    time.sleep(2.0)
    [result] = results(pool, 1)
    assert pool.replaced == 0
  assert result.status == "timeout"


def test_a_job_is_tried_twice_only(monkeypatch):
  with started(timeout_s=30.0) as pool:
    monkeypatch.setattr(pool_lib, "MAX_TRIES", 0)
    submit(pool, Job("1", LOOP, ("1",)))
    step_until(pool, lambda: children_of(pool.processes()))
    for pid in pool.processes():
      os.kill(pid, signal.SIGKILL)
    [result] = results(pool, 1)
  assert (result.status, result.error) == ("error", "WorkerDied")


@pytest.mark.slow
def test_the_runs_of_a_zygote_that_dies_twice_are_not_forgotten(pool):
  loops = [Job("loop", LOOP, (str(x),), runs=3) for x in range(2)]
  submit(pool, *loops)
  pool.step(0.1)
  for _ in range(2):  # The second kill hits zygotes that are still starting.
    for pid in pool.processes():
      os.kill(pid, signal.SIGKILL)
    before = pool.replaced
    step_until(pool, lambda before=before: pool.replaced == before + 3)
  assert {result.status for result in results(pool, 2)} == {"timeout"}


def test_without_seccomp_it_refuses_to_start():
  def unfiltered(seed, layers, **options):
    return Zygote(seed, layers - {"seccomp"}, **options)

  with pytest.raises(RuntimeError, match="unsafe=True"):
    with started(start_zygote=unfiltered):
      pass


@pytest.mark.parametrize("size", ["10", "5000"])
def test_short_and_long_values_are_compared_alike(pool, size):
  jobs = [
    Job("1", ANY_ORDER, (size,), runs=2),
    Job("2", IN_ORDER, (size,), runs=2),
    Job("3", "def f(x):\n  return [0] * x", (size,), runs=2),
  ]
  mapping, order, same = run(pool, *jobs)
  assert (mapping.status, same.status) == ("ok", "ok")
  assert (order.status, order.error) == ("nondeterministic", "RunsDiffer")
  assert comparison.is_short([same, same]) == (size == "10")


def test_long_text_that_is_no_value_is_no_agreement(pool):
  forge = (
    "def f(x):\n  import sys\n"
    "  os = sys.modules['os']\n"
    "  for pipe in range(3, 40):\n"
    "    try: os.write(pipe, b'x' * 9000 + b'\\ndone\\n')\n"
    "    except OSError: continue\n"
    "    os._exit(0)\n"
  )
  [result] = run(pool, Job("1", forge, ("1",), runs=2))
  assert (result.status, result.error) == ("error", "MalformedReport")
