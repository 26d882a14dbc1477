"""Tests that results stream in order, at once, and with a bounded backlog."""

import re
import threading
from concurrent.futures import Future

import pytest

from azr_jax.executor import futures, streaming


def test_a_result_does_not_wait_for_what_comes_after_it():
  more = threading.Event()

  def pending():
    yield futures.done(0)
    more.wait(30)
    yield futures.done(1)

  results = streaming.in_order(pending(), backlog=10)
  assert next(results) == 0 and not more.is_set()
  more.set()
  assert list(results) == [1]


def test_order_is_kept_and_the_first_is_waited_for():
  first = Future()
  pending = [first, futures.done(1), futures.done(2)]
  results = streaming.in_order(iter(pending), backlog=10)
  first.set_result(0)
  assert list(results) == [0, 1, 2]


def test_no_more_than_the_backlog_wait():
  made = []

  def pending():
    while True:
      made.append(Future())
      if len(made) == 4:
        made[0].set_result("first")
      yield made[-1]

  assert next(streaming.in_order(pending(), backlog=3)) == "first"
  assert len(made) <= 5


def test_a_failure_is_passed_on():
  failed = Future()
  failed.set_exception(ValueError("no"))
  with pytest.raises(ValueError, match="no"):
    list(streaming.in_order([failed], backlog=1))


def test_progress_is_told_on_standard_error(capsys):
  assert list(streaming.counted("abc", "letters", every_s=0.0)) == [*"abc"]
  written = capsys.readouterr()
  lines = written.err.splitlines()
  assert written.out == "" and len(lines) == 4
  for line, count in zip(lines, (1, 2, 3, 3), strict=True):
    assert re.fullmatch(rf"{count} letters in \d+\.\d s, \d+ a second", line)
  assert list(streaming.counted([], "letters", every_s=9.0)) == []
  assert capsys.readouterr().err.startswith("0 letters in 0.0 s")
