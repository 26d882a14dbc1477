"""Tests that two runs of a job do not agree on the time."""

import datetime
import random

import pytest

from azr_jax.executor.child import clock_steps
from azr_jax.executor.child.forbidden import RULES_OF_PROPOSALS

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
  ("os", "os.times().elapsed // 10**6"),
  ("datetime", "datetime.datetime.now().month"),
  ("datetime", "datetime.datetime.now(tz=datetime.timezone.utc).year"),
  ("datetime", "datetime.datetime.utcnow().hour"),
  ("datetime", "datetime.datetime.today().weekday()"),
  ("datetime", "datetime.date.today().day"),
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


def test_no_run_loads_a_second_copy_of_a_clock(run):
  clock = "(sys.modules.pop('time'), __import__('time').gmtime().tm_mon)[1]"
  result = run(f"import sys\ndef f():\n  return {clock}", runs=2)
  assert (result.status, result.error) == ("error", "ImportError")


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


def test_all_parts_of_the_time_differ_between_runs():
  rng = random.Random(0)
  for _ in range(5000):
    start = datetime.datetime(2020, 1, 1) + datetime.timedelta(
      seconds=rng.randrange(40 * 365 * 86_400)
    )
    step = datetime.timedelta(seconds=clock_steps.draw(rng))
    parts = [
      (*then.timetuple()[:6], then.weekday())
      for then in (start, start + step, start + 2 * step)
    ]
    for part in zip(*parts, strict=True):
      assert len(set(part)) == 3, (start, parts)


def test_the_steps_of_two_jobs_differ():
  assert len({clock_steps.draw() for _ in range(20)}) > 10


# Finds a forbidden class in a way that the rules do not block.
FOUND = """
[date] = [k for k in object.__subclasses__() if k.__name__ == "date"]
[moment] = date.__subclasses__()
"""


def test_classes_of_forbidden_modules_are_found_but_shifted(run):
  code = FOUND + "def f():\n  return moment.now().weekday()"
  assert run(code, forbidden=RULES_OF_PROPOSALS).status == "ok"
  result = run(code, forbidden=RULES_OF_PROPOSALS, runs=2)
  assert result.status == "nondeterministic"


@pytest.mark.parametrize("runs", [1, 2])
def test_all_runs_under_rules_have_the_same_replacements(run, runs):
  code = FOUND + "def f():\n  return type(vars(moment)['now']).__name__"
  result = run(code, forbidden=RULES_OF_PROPOSALS, runs=runs)
  assert result.outputs == ("'classmethod'",)
