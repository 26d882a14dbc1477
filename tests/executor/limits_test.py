"""Tests of the limits of time: of a call, of a job, of sleep, of validation."""

import contextlib
import dataclasses
import importlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from azr_jax.executor import Executor, Job
from azr_jax.executor import pool as pool_lib
from azr_jax.executor.limits import Limits
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.executor.worker import Zygote
from tests.executor.process_table import children_of, wait_until

LIMIT_S = 0.4
ENDLESS = "def f(*_):\n  while True: pass"
# Uses so many seconds of CPU time, by its own clock.
USE = """
import time
def f(seconds, answer=None):
  end = time.process_time() + seconds
  while time.process_time() < end: pass
  return answer
"""
SLEEP = """
import threading
def f(seconds):
  threading.Event().wait(seconds)
"""


@pytest.fixture(scope="module")
def pool():
  with Executor(1, LIMIT_S, memory_mb=256, job_factor=2.0) as executor:
    yield executor


@contextlib.contextmanager
def on_one_core(busy):
  """Pins this process to one core, with busy processes beside it."""
  cores = os.sched_getaffinity(0)
  os.sched_setaffinity(0, {min(cores)})
  loop = [sys.executable, "-S", "-c", "while True: pass"]
  processes = [subprocess.Popen(loop) for _ in range(busy)]
  try:
    yield
  finally:
    os.sched_setaffinity(0, cores)
    for process in processes:
      process.kill()
      process.wait()


@pytest.mark.parametrize("endless", [0, 6])
def test_neither_busy_processes_nor_slots_make_a_right_answer_wrong(endless):
  shares = (0.05, 0.25, 0.75)
  answers = [
    Job("", USE, (f"{share * LIMIT_S}, {number}",))
    for share in shares
    for number in range(4)
  ]
  # Without the processes it is a matter of slots, with them of cores.
  with on_one_core(busy=0 if endless else 8), Executor(1, LIMIT_S, 256) as pool:
    loops = [pool.submit(Job("", ENDLESS, (str(i),))) for i in range(endless)]
    results = pool.map(answers)
    assert all(loop.result().status == "timeout" for loop in loops)
  assert [r.outputs for r in results] == [(str(n),) for n in range(4)] * 3
  # The limit was that of CPU time: each took more wall clock than it has.
  assert all(r.seconds > LIMIT_S for r in results if r.cpu_s > 0.6 * LIMIT_S)


def test_an_endless_call_gets_the_limit_in_cpu_time(pool):
  with on_one_core(busy=2):
    result = pool.submit(Job("", ENDLESS, ("1",))).result(60)
  assert (result.status, result.error) == ("timeout", "TimeoutError")
  assert LIMIT_S <= result.cpu_s < 1.5 * LIMIT_S


def test_each_call_has_the_limit_and_all_together_that_of_the_job(pool):
  each_s = 0.6 * LIMIT_S
  inputs = tuple(f"{each_s}, {number}" for number in range(6))
  result = pool.submit(Job("", USE, inputs[:3])).result(60)
  assert result.status == "ok"
  result = pool.submit(Job("", USE, inputs)).result(60)
  assert (result.status, result.error) == ("timeout", "JobTimeout")
  assert result.outputs == ("0", "1", "2", None, None, None)
  assert result.finished == 3
  assert 2 * LIMIT_S <= result.cpu_s < 3 * LIMIT_S


def test_two_runs_share_the_limit_of_a_job(pool):
  inputs = tuple(f"{0.6 * LIMIT_S}, {number}" for number in range(3))
  result = pool.submit(Job("", USE, inputs, runs=2)).result(60)
  assert (result.status, result.error) == ("timeout", "JobTimeout")


def test_a_sleeping_program_ends_at_the_limit(pool):
  start = time.monotonic()
  result = pool.submit(Job("", SLEEP, ("600",))).result(60)
  assert (result.status, result.error) == ("timeout", "Asleep")
  assert result.cpu_s < LIMIT_S
  assert time.monotonic() - start < 20 * LIMIT_S


def test_short_sleeps_add_up(pool):
  inputs = (f"{0.6 * LIMIT_S}",)
  assert pool.submit(Job("", SLEEP, inputs)).result(60).status == "ok"
  result = pool.submit(Job("", SLEEP, 3 * inputs)).result(60)
  assert (result.status, result.error) == ("timeout", "Asleep")


def test_validation_has_a_quarter_of_the_limits(pool):
  job = Job("", USE, (f"{0.5 * LIMIT_S}",))
  validation = dataclasses.replace(job, validation=True)
  quick = Job("", USE, (f"{0.1 * LIMIT_S}",), validation=True)
  results = pool.map([job, validation, quick])
  assert [r.status for r in results] == ["ok", "timeout", "ok"]


def test_limits_of_a_job():
  settings = ExecutorSettings(timeout_s=8.0, job_factor=4.0, sleep_factor=0.5)
  cases = {
    Job("", "", ("1",)): (8.0, 8.0, 4.0),
    Job("", "", ()): (8.0, 8.0, 4.0),
    Job("", "", ("1",) * 3): (8.0, 24.0, 4.0),
    Job("", "", ("1",) * 30): (8.0, 32.0, 4.0),
    Job("", "", ("1",) * 30, runs=2): (8.0, 16.0, 4.0),
    Job("", "", ("1",) * 30, runs=2, validation=True): (2.0, 4.0, 1.0),
  }
  for job, limits in cases.items():
    assert settings.limits(job) == Limits(*limits)


def test_the_kernels_limit_of_a_late_zygote_is_a_timeout(monkeypatch):
  monkeypatch.setattr(pool_lib, "SILENT_S", 600.0)
  settings = ExecutorSettings(workers=1, timeout_s=LIMIT_S, memory_mb=256)
  pool = pool_lib.Pool(settings)

  def step_until(condition):
    assert wait_until(lambda: pool.step(0.05) is None or condition(), 100)

  try:
    step_until(lambda: pool.layers is not None)
    pool.submit(0, Job("", ENDLESS, ("1",)))
    step_until(lambda: children_of(pool.processes()))
    for pid in pool.processes():
      os.kill(pid, signal.SIGSTOP)
    assert wait_until(lambda: not children_of(pool.processes()), 100)
    for pid in pool.processes():
      os.kill(pid, signal.SIGCONT)
    step_until(lambda: pool.verdicts)
    [(_, result)] = pool.verdicts
  finally:
    pool.close()
  assert (result.status, result.error) == ("timeout", "JobTimeout")
  assert result.cpu_s > LIMIT_S + 1


def test_a_zygote_that_is_alive_may_take_long(monkeypatch):
  monkeypatch.setattr("azr_jax.executor.pool.SILENT_S", 1.5)
  with Executor(workers=1, timeout_s=10, memory_mb=256) as pool:
    zygotes = pool.processes()
    result = pool.submit(Job("", USE, ("2, 4",))).result(60)
    assert (result.outputs, pool.processes()) == (("4",), zygotes)


def test_a_trainer_that_holds_its_interpreter_loses_no_zygote(monkeypatch):
  monkeypatch.setattr("azr_jax.executor.pool.SILENT_S", 1.5)
  with Executor(workers=1, timeout_s=10, memory_mb=256) as pool:
    zygotes = pool.processes()
    future = pool.submit(Job("", USE, ("2.5, 4",)))
    start = time.monotonic()
    while time.monotonic() - start < 2.2:
      sum(range(40_000_000))  # Python code that never lets others run.
    assert future.result(60).outputs == ("4",)
    assert pool.processes() == zygotes


def _stopwatch(monkeypatch, *limits, waited):
  """Returns a stopwatch and the clocks that it reads, all at 0."""
  folder = pathlib.Path(sys.modules[Zygote.__module__].__file__).parent
  monkeypatch.syspath_prepend(str(folder))
  module = importlib.import_module("stopwatch")
  clocks = {"wall": 0.0, "cpu": 0.0}
  monkeypatch.setattr(module.time, "monotonic", lambda: clocks["wall"])
  monkeypatch.setattr(module, "cpu_s", lambda pid: clocks["cpu"])
  monkeypatch.setattr(module, "core_wait_s", lambda pid: waited(clocks))
  return module.Stopwatch(1, *limits), clocks, module.frames


def test_a_stopwatch_looks_when_a_limit_may_be_reached(monkeypatch):
  watch, clocks, frames = _stopwatch(
    monkeypatch, 1.0, 1.5, 9.0, waited=lambda c: c["wall"] - c["cpu"]
  )
  looks = []
  while (limit := watch.reached()) is None:
    looks.append(clocks["wall"])
    elapsed = watch.next_look() - clocks["wall"]
    clocks["wall"] += elapsed
    clocks["cpu"] += elapsed / 4  # Three more processes are on its core.
    if clocks["cpu"] > 0.9999:
      break
  assert limit is None and len(looks) < 40
  clocks["cpu"] = 1.0
  clocks["wall"] = watch.next_look()
  assert watch.reached() == frames.CALL_TIMED_OUT
  watch.begin_call()
  assert watch.reached() is None
  assert watch.next_look() == pytest.approx(clocks["wall"] + 0.5)
  clocks |= {"wall": clocks["wall"] + 0.6, "cpu": 1.5}
  assert watch.reached() == frames.RUN_TIMED_OUT


@pytest.mark.parametrize(
  "waited, ends_s", [(lambda c: 0.5, 2.5), (lambda c: None, 20.0)]
)
def test_where_the_kernel_is_silent_sleep_is_ten_times_as_long(
  monkeypatch, waited, ends_s
):
  watch, clocks, frames = _stopwatch(
    monkeypatch, 100.0, 100.0, 2.0, waited=waited
  )
  while watch.reached() is None:
    clocks["wall"] = watch.next_look()
  assert watch.reached() == frames.SLEPT
  assert clocks["wall"] == pytest.approx(ends_s)
