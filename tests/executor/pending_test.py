"""Tests of the unfinished jobs and their waiters, without any process."""

import concurrent.futures

from azr_jax.executor import Job, Result
from azr_jax.executor.limits import Limits
from azr_jax.executor.pending import Pending

JOB = Job("1", "def f():\n  return 1", ("",), runs=2)
LIMITS = Limits(1.0, 1.0, 1.0)
RESULT = Result("1", "ok", ("1",), None, 0.1)


def test_a_cancelled_task_may_be_dropped_run_by_run():
  pending = Pending(lambda: None)
  [future] = pending.submit([JOB], LIMITS)
  task = pending.take()
  assert not pending.dropped(task)
  assert future.cancel()
  assert pending.dropped(task) and pending.dropped(task)
  assert concurrent.futures.wait([future], timeout=1).done


def test_a_dropped_task_does_not_answer_for_a_later_one():
  pending = Pending(lambda: None)
  [first] = pending.submit([JOB], LIMITS)
  task = pending.take()
  first.cancel()
  assert pending.dropped(task)
  [second] = pending.submit([JOB], LIMITS)
  later = pending.take()
  assert later is not task
  pending.finish(later, RESULT)
  assert second.result(1) == RESULT


def test_identical_jobs_are_one_task_with_their_own_names():
  pending = Pending(lambda: None)
  other = Job("2", JOB.code, JOB.inputs, runs=2)
  futures = pending.submit([JOB, other], LIMITS)
  task = pending.take()
  assert pending.take() is None
  pending.finish(task, RESULT)
  assert [future.result(1).id for future in futures] == ["1", "2"]
  assert pending.counters()["ok"] == 2


def test_the_end_reaches_everybody_once():
  pending = Pending(lambda: None)
  futures = pending.submit([JOB, Job("2", "", ())], LIMITS)
  assert futures[0].cancel()
  pending.end(OSError("gone"))
  assert isinstance(futures[1].exception(1), OSError)
  assert len(concurrent.futures.wait(futures, timeout=1).done) == 2
