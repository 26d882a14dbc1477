"""Tests of unfinished jobs and their waiters, without any process."""

import concurrent.futures

from azr_jax.executor import Job, Result
from azr_jax.executor.pool.pending import PendingJobs

JOB = Job("1", "def f():\n  return 1", ("",), runs=2)
RESULT = Result("1", "ok", ("1",), None, 0.1)


def test_a_cancelled_task_is_not_taken_and_told_once():
  pending = PendingJobs(lambda: None)
  futures = pending.submit([JOB, JOB, Job("2", "", ())])
  assert futures[0].cancel()
  assert not pending.take_cancelled()
  assert futures[1].cancel()
  [cancelled] = pending.take_cancelled()
  assert cancelled.job is JOB and not pending.take_cancelled()
  assert concurrent.futures.wait(futures[:2], timeout=1).done == {*futures[:2]}
  assert [task.job.id for task in pending.take(9)] == ["2"]


def test_a_cancelled_task_does_not_answer_for_a_later_one():
  pending = PendingJobs(lambda: None)
  [first] = pending.submit([JOB])
  [task] = pending.take(9)
  first.cancel()
  [second] = pending.submit([JOB])
  [later] = pending.take(9)
  assert later is not task and later.number != task.number
  # A cancelled job that was in flight still reports its result.
  pending.finish(task, RESULT)
  assert not second.done()
  pending.finish(later, RESULT)
  assert second.result(1) == RESULT


def test_identical_jobs_are_one_task_with_their_own_names():
  pending = PendingJobs(lambda: None)
  other = Job("2", JOB.code, JOB.inputs, runs=2)
  futures = pending.submit([JOB, other])
  [task] = pending.take(9)
  pending.finish(task, RESULT)
  assert [future.result(1).id for future in futures] == ["1", "2"]
  assert pending.counters()["ok"] == 2


def test_tasks_that_are_put_back_come_first():
  pending = PendingJobs(lambda: None)
  pending.submit([Job(str(i), str(i), ()) for i in range(4)])
  taken = pending.take(2)
  assert [task.job.id for task in taken] == ["0", "1"]
  pending.requeue(taken)
  assert [task.job.id for task in pending.take(9)] == ["0", "1", "2", "3"]


def test_the_end_reaches_everybody_once():
  pending = PendingJobs(lambda: None)
  futures = pending.submit([JOB, Job("2", "", ())])
  assert futures[0].cancel()
  pending.end(OSError("gone"))
  assert isinstance(futures[1].exception(1), OSError)
  assert len(concurrent.futures.wait(futures, timeout=1).done) == 2
