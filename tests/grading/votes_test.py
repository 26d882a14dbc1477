"""Equal answers have equal votes, for every task type."""

import pytest

from azr_jax.executor import Executor
from azr_jax.grading import votes


@pytest.fixture(scope="module")
def executor():
  with Executor(workers=1, timeout_s=2.0, memory_mb=256) as pool:
    yield pool


def output(executor, text):
  return votes.submit_output(executor, text).result(timeout=30)


@pytest.mark.parametrize(
  "answers",
  [
    ("[1, 2]", "[ 1,2 ]", "list((1, 2))"),
    ("{2, 1}", "{1, 2}", "set([2, 1])"),
    ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", "dict(a=1, b=2)"),
    ("float('nan')", "float('NaN')"),
    # Python keeps the first of equal items and the last of equal keys.
    ("{1, True}", "{1}"),
    ("{0: 'a', False: 'b'}", "{0: 'b'}"),
  ],
)
def test_outputs_of_one_value_are_one_vote(executor, answers):
  found = {output(executor, answer) for answer in answers}
  assert len(found) == 1 and None not in found


@pytest.mark.parametrize(
  "first, second",
  [("1", "1.0"), ("1", "True"), ("[1]", "(1,)"), ("'1'", "1"), ("1, 2", "12")],
)
def test_outputs_of_other_values_are_other_votes(executor, first, second):
  assert output(executor, first) != output(executor, second)


def test_a_computation_votes_only_if_it_may(executor):
  assert output(executor, "[1] * 2") is None
  computed = votes.submit_output(executor, "[1] * 2", may_compute=True)
  assert computed.result(timeout=30) == output(executor, "[1, 1]")


@pytest.mark.parametrize("text", ["", "   ", "f(1)", "x", "1 / 0", "import os"])
def test_what_is_no_value_is_no_vote(executor, text):
  assert output(executor, text) is None


def test_inputs_are_compared_as_arguments(executor):
  def vote(text):
    return votes.submit_input(executor, text).result(timeout=30)

  assert vote("1, x=[2]") == vote(" 1 , x = [ 2 ]") == vote("2 - 1, x=[2]")
  assert vote("1, 2") != vote("(1, 2)")
  assert vote("") not in (None, vote("None"))
  assert vote("f(1)") is None


def test_programs_are_compared_by_their_outputs(executor):
  def vote(body):
    code = f"def f(x):\n  return {body}"
    future = votes.submit_program(executor, code, ("1", "2"))
    return future.result(timeout=30)

  assert vote("x + x") == vote("2 * x") != vote("x * x")
  assert vote("x + missing") is None
  assert votes.submit_program(executor, "", ("1",)).result() is None


def test_names_of_errors_end_at_the_colon():
  assert votes.of_error("ValueError: no") == votes.of_error(" ValueError")
  assert votes.of_error("ValueError") != votes.of_error("TypeError")
  assert votes.of_error(" : no") is None


@pytest.mark.parametrize(
  "given, want",
  [
    ("abb", "b"),
    ("ab", "a"),
    ("ba", "b"),  # A tie: the first wins.
    ("bab", "b"),
    ("abcbc", "b"),
  ],
)
def test_the_most_frequent_vote_is_the_majority(given, want):
  assert votes.majority([*given]) == want
  assert votes.majority([None, *given, None, None, None]) == want


def test_no_votes_are_no_majority():
  assert votes.majority([]) is None
  assert votes.majority([None, None]) is None
