"""Tests of the time limits: call, job, sleep and validation."""

import dataclasses
import importlib
import pathlib
import sys
import time
import types

import pytest
from typed import present

from azr_jax.executor import Executor, Job
from azr_jax.executor.limits import Limits
from azr_jax.executor.pool.worker import Zygote
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.lab.bench import load

LIMIT_S = 0.4
ENDLESS = "def f(*_):\n  while True: pass"
# Uses the given CPU seconds, measured by its own clock.
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


@pytest.mark.parametrize(
  "condition", ["busy", pytest.param("endless", marks=pytest.mark.slow)]
)
def test_neither_busy_processes_nor_slots_make_a_right_answer_wrong(condition):
  busy, endless = load.CONDITIONS[condition]
  texts = [str(number) for number in range(8)]
  with (
    load.on_one_core(),
    Executor(1, LIMIT_S, memory_mb=256) as executor,
    load.busy_processes(busy),
  ):
    loops = [
      executor.submit(Job("loop", ENDLESS, ("0",))) for _ in range(endless)
    ]
    # These programs stop by their own CPU clock, so a slow core does not make
    # them longer. `benchmark load` measures programs that count iterations.
    jobs = [Job(text, USE, (f"{LIMIT_S / 2}, {text}",)) for text in texts]
    results = list(executor.map(jobs))
    for loop in loops:
      assert loop.result().status == "timeout"
  assert [result.outputs for result in results] == [(text,) for text in texts]
  # The limit was on CPU time: a wall-clock limit would have failed.
  assert sum(result.seconds > LIMIT_S for result in results) > 4
  assert max(result.cpu_s for result in results) < LIMIT_S


def test_programs_near_the_limit_are_counted():
  found = load.measure(LIMIT_S, 1, (0.05,), ["alone"])
  assert [*found] == ["alone/5%"]
  answers = found["alone/5%"]
  assert answers.correct == answers.total == 8
  assert 0 < answers.max_cpu < 1 and answers.max_cpu <= answers.max_wall


def test_an_endless_call_gets_the_limit_in_cpu_time(pool):
  with load.on_one_core(), load.busy_processes(2):
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


@pytest.mark.skipif(
  not pathlib.Path("/proc/self/schedstat").exists(), reason="no run delays"
)
def test_to_wait_for_a_core_is_no_sleep():
  """The program waits for a core for more than twice its sleep limit."""
  with (
    load.on_one_core(),
    Executor(1, LIMIT_S, memory_mb=256, sleep_factor=0.05) as pool,
    load.busy_processes(4),
  ):
    result = pool.submit(Job("", USE, (f"{0.5 * LIMIT_S}, 1",))).result(60)
  assert result.outputs == ("1",)
  assert result.seconds - result.cpu_s > 2 * 0.05 * LIMIT_S


def test_short_sleeps_add_up(pool):
  # Two sleeps exceed the limit by 0.4 of it, so even a zygote that gets its
  # core late stops the second one.
  inputs = (f"{0.7 * LIMIT_S}",)
  assert pool.submit(Job("", SLEEP, inputs)).result(60).status == "ok"
  # In one process, and in a process per call.
  for per_call in (True, False):
    job = Job("", SLEEP, 3 * inputs, per_call=per_call)
    result = pool.submit(job).result(60)
    assert (result.status, result.error) == ("timeout", "Asleep")
    assert result.finished < 3  # The second may end on a busy machine.


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
    Job("", "", ("1",) * 30, per_call=True): (8.0, 240.0, 4.0),
    Job("", "", ("1",) * 30, runs=2): (8.0, 16.0, 4.0),
    Job("", "", ("1",) * 30, runs=2, validation=True): (2.0, 4.0, 1.0),
  }
  for job, limits in cases.items():
    assert settings.limits(job) == Limits(*limits)


def _stopwatch(monkeypatch, *limits, waits):
  """Returns a stopwatch and the clocks that it reads, all set to 0."""
  file = present(sys.modules[Zygote.__module__].__file__)
  folder = pathlib.Path(file).parents[1]
  monkeypatch.syspath_prepend(str(folder / "child"))
  module = importlib.import_module("stopwatch")
  clocks = {"wall": 0.0, "cpu": 0.0}
  wall_clock = types.SimpleNamespace(monotonic=lambda: clocks["wall"])
  monkeypatch.setattr(module, "time", wall_clock)
  monkeypatch.setattr(module, "cpu_s", lambda pid: clocks["cpu"])
  monkeypatch.setattr(module, "core_waits", lambda pid: waits(clocks))
  return module.Stopwatch(1, *limits), clocks, module.frames


def test_a_stopwatch_looks_when_a_limit_may_be_reached(monkeypatch):
  watch, clocks, frames = _stopwatch(
    monkeypatch, 1.0, 1.5, 9.0, waits=lambda c: (c["wall"] - c["cpu"], 1, True)
  )
  looks = []
  while (limit := watch.reached()) is None:
    looks.append(clocks["wall"])
    elapsed = watch.next_check() - clocks["wall"]
    clocks["wall"] += elapsed
    clocks["cpu"] += elapsed / 4  # Three more processes are on its core.
    if clocks["cpu"] > 0.9999:
      break
  assert limit is None and len(looks) < 40
  clocks["cpu"] = 1.0
  clocks["wall"] = watch.next_check()
  assert watch.reached() == frames.CALL_TIMED_OUT
  watch.begin_call()
  assert watch.reached() is None
  assert watch.next_check() == pytest.approx(clocks["wall"] + 0.5)
  clocks |= {"wall": clocks["wall"] + 0.6, "cpu": 1.5}
  assert watch.reached() == frames.RUN_TIMED_OUT


@pytest.mark.parametrize(
  "waits, ends_s",
  [
    # Asleep at every check, after waits of half a second.
    (lambda clocks: (0.5, 1, False), 2.5),
    # The kernel does not report how long it waited.
    (lambda clocks: None, 20.0),
    # Runnable at every check, but never queued for a core.
    (lambda clocks: (0.0, int(clocks["wall"]), True), 4.0),
  ],
)
def test_when_a_child_that_does_not_run_has_slept_too_long(
  monkeypatch, waits, ends_s
):
  watch, clocks, frames = _stopwatch(
    monkeypatch, 100.0, 100.0, 2.0, waits=waits
  )
  while (limit := watch.reached()) is None:
    clocks["wall"] = watch.next_check()
  assert limit == frames.SLEPT
  assert clocks["wall"] == pytest.approx(ends_s, rel=0.01)


def test_a_child_that_waits_for_a_core_all_the_time_has_not_slept(monkeypatch):
  """A wait counts only once it is over, here after ten seconds."""

  def waits(clocks):
    return (10.0, 2, True) if clocks["wall"] > 10.0 else (0.0, 1, True)

  watch, clocks, _ = _stopwatch(monkeypatch, 100.0, 100.0, 2.0, waits=waits)
  while clocks["wall"] < 11.9:
    assert watch.reached() is None
    clocks["wall"] = watch.next_check()
