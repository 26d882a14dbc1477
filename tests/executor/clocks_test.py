"""Tests that two runs of a job do not agree on the time."""

import datetime
import importlib
import pathlib
import random
import sys

import pytest

from azr_jax.executor.worker import Zygote

COARSE = [
  ("time", "time.gmtime().tm_wday"),
  ("time", "time.localtime(None).tm_hour"),
  ("time", "time.ctime()[:7]"),
  ("time", "time.asctime()[:7]"),
  ("time", "time.strftime('%B %Y')"),
  ("time", "time.strftime('%A', time.gmtime(time.time()))"),
  ("time", "time.time_ns() // 10**15"),
  ("time", "int(time.monotonic()) // 10**6"),
  ("time", "time.clock_gettime(time.CLOCK_REALTIME) // 86400"),
  ("queue", "queue.time() // 10**6"),
  ("datetime", "datetime.datetime.now().month"),
  ("datetime", "datetime.datetime.now(tz=datetime.timezone.utc).year"),
  ("datetime", "datetime.datetime.utcnow().hour"),
  ("datetime", "datetime.datetime.today().weekday()"),
  ("datetime", "datetime.date.today().day"),
  ("sys", "(sys.modules.pop('time'), __import__('time').gmtime().tm_mon)[1]"),
  (
    "datetime",
    "type('D', (datetime.datetime,), {}).now().strftime('%H')",
  ),
]


@pytest.mark.parametrize("module, clock", COARSE)
def test_a_coarse_clock_is_not_deterministic(run, module, clock):
  code = f"import {module}\ndef f():\n  return {clock}"
  result = run(code, runs=2)
  assert (result.status, result.error) == ("nondeterministic", "RunsDiffer")


def test_a_shifted_clock_measures_and_formats_as_before(run):
  code = """
import datetime, time
class Timer:
  clock = time.perf_counter
def f():
  start, before = Timer().clock(), time.process_time()
  elapsed = Timer().clock() - start, time.process_time() - before
  today = datetime.datetime(2020, 1, 2)
  return [0 <= t < 0.5 for t in elapsed], time.gmtime(0).tm_year, [
    time.strftime("%d", time.gmtime(0)), today.isoformat(),
    abs(time.time() - datetime.datetime.now().timestamp()) < 1]
"""
  result = run(code, runs=3)
  assert result.status == "ok", result
  assert result.outputs[0].startswith("([True, True], 1970, ['01', '2020-01-02")


def test_all_parts_of_the_time_differ_between_runs(monkeypatch):
  folder = pathlib.Path(sys.modules[Zygote.__module__].__file__).parent
  monkeypatch.syspath_prepend(str(folder))
  step = datetime.timedelta(seconds=importlib.import_module("clocks").STEP_S)
  rng = random.Random(0)
  for _ in range(2000):
    start = datetime.datetime(2020, 1, 1) + datetime.timedelta(
      seconds=rng.randrange(40 * 365 * 86_400)
    )
    parts = [
      (*then.timetuple()[:6], then.weekday())
      for then in (start, start + step, start + 2 * step)
    ]
    for part in zip(*parts, strict=True):
      assert len(set(part)) == 3, (start, parts)
