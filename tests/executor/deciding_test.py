"""Tests of where verdicts are decided, without any process."""

import threading

import pytest

from azr_jax.executor import Job, Result
from azr_jax.executor.deciding import MAX_CHARS_AT_ONCE, Decider
from azr_jax.executor.pending import Pending

LONG = f"'{'x' * MAX_CHARS_AT_ONCE}'"


def decide(results):
  """Returns the future of a verdict, and the threads that it arrived in."""
  pending = Pending(lambda: None)
  [future] = pending.submit([Job("1", "", ("",), runs=2)], 1.0)
  threads = []
  future.add_done_callback(lambda _: threads.append(threading.current_thread()))
  decider = Decider(pending)
  decider.decide(pending.take(), results)
  future.exception(10)
  decider.close()
  return future, threads


@pytest.mark.parametrize("text, is_here", [("1", True), (LONG, False)])
def test_long_values_are_compared_in_another_thread(text, is_here):
  result = Result("1", "ok", (text,), None, 0.1)
  future, [thread] = decide([result, result])
  assert future.result() == result
  assert (thread is threading.current_thread()) == is_here


def test_the_waiters_hear_of_a_failure_in_the_other_thread():
  result = Result("1", "ok", (LONG,), None, 0.1)
  future, _ = decide([result, Result("1", "ok", (), None, 0.1)])
  assert isinstance(future.exception(), ValueError)


def test_a_verdict_after_the_end_reaches_nobody():
  pending = Pending(lambda: None)
  [future] = pending.submit([Job("1", "", ("",))], 1.0)
  task = pending.take()
  pending.end(None)
  pending.finish(task, Result("1", "ok", ("1",), None, 0.1))
  assert future.cancelled()
