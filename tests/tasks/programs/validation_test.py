"""Validation with the real executor, and the seeds' clean-up."""

import pytest

from azr_jax.systems.azr.appendix import rewriting
from azr_jax.tasks.programs import validation
from azr_jax.tasks.programs.task import InductionTask, Triplet
from azr_jax.tasks.programs.validation import Rejection


@pytest.mark.parametrize(
  "code, argument, want",
  [
    ("def f(x):\n  return x + 1", "2", "3"),
    ("def f(a, b=2):\n  return {a, b}", "3", "{2, 3}"),
    ("import math\ndef f(x):\n  return math.sqrt(x)", "4", "2.0"),
  ],
)
def test_valid(executor, code, argument, want):
  verdict = validation.submit_triplet(executor, code, argument).result()
  assert verdict == Triplet(code, argument, want)


@pytest.mark.parametrize(
  "code, argument, reason",
  [
    ("def f(x):\n  return x +", "2", "error"),
    ("def f(x):\n  raise StopIteration", "2", "error"),
    ("def f(x):\n  while True: pass", "2", "timeout"),
    ("import time\ndef f(x):\n  return x", "2", "blocked"),
    ("import os\ndef f(x):\n  return os.path.join(x)", "'a'", "blocked"),
    ("def f(x):\n  return list(set(x))", "'hello world'", "nondeterministic"),
    ("def f(x):\n  return id(x)", "[]", "nondeterministic"),
    ("def f(x):\n  x = 1", "2", "no_output"),
    ("def f(x):\n  return 'a' * x", "5000", "oversize"),
    ("def f(x):\n  return x", "1) or (2", "error"),
  ],
)
def test_rejected(executor, code, argument, reason):
  verdict = validation.submit_triplet(executor, code, argument).result()
  assert verdict == Rejection(reason)


def test_a_forbidden_word_in_a_text_is_no_import(executor):
  code = "def f(x):\n  s = 'time flies'  # random\n  return s"
  verdict = validation.submit_triplet(executor, code, "1").result()
  assert isinstance(verdict, Triplet)


@pytest.mark.parametrize(
  "code, argument, want",
  [
    ("def f(x):\n  return x[0]", "[]", "IndexError"),
    ("def f(x):\n  return 1 / x", "0", "ZeroDivisionError"),
    ("def f(x):\n  return f(x)", "0", "RecursionError"),
    ("def f(x):\n  raise KeyError(x)", "0", "KeyError"),
    ("def f(x):\n  return x", "0", Rejection("no_error")),
    # It is not `f` that raises.
    ("def f(x):\n  return x", "hello", Rejection("error")),
    ("def f(x):\n  return x", "1 / 0", Rejection("error")),
    ("def f(x):\n  return x", "1, 2", Rejection("error")),
    ("1 / 0\ndef f(x):\n  return x", "1", Rejection("error")),
    ("text = 'def f('", "1", Rejection("error")),
    ("def f(x):\n  return " + "1+" * 3000 + "1", "1", Rejection("error")),
    ("def f(x):\n  return '\ud800'[x]", "1", Rejection("error")),
    # Python would raise something else, or nothing.
    ("def f(x):\n  return open(x)", "'a'", Rejection("error")),
    ("def f(x):\n  return 10 ** x", "5000", Rejection("error")),
    # Not Python's own.
    (
      "class KeyError(Exception): pass\ndef f(x):\n  raise KeyError",
      "0",
      Rejection("error"),
    ),
    (
      "E = type('KeyError', (Exception,), {})\ndef f(x):\n  raise E",
      "0",
      Rejection("error"),
    ),
    ("def f(x):\n  return x +", "0", Rejection("error")),
    ("def f(x):\n  return x", "0) + (1", Rejection("error")),
    ("def f(x):\n  return lambda: x", "0", Rejection("error")),
    ("def f(x):\n  return 'a' * 10 ** 12", "0", Rejection("error")),
    ("import nothing\ndef f(x):\n  return x", "0", Rejection("error")),
    ("import os\ndef f(x):\n  os._exit(1)", "0", Rejection("error")),
    ("def f(x):\n  while True: pass", "0", Rejection("timeout")),
    ("import time\ndef f(x):\n  return 1 / x", "0", Rejection("blocked")),
    (
      "class Mine(Exception): pass\ndef f(x):\n  raise Mine",
      "0",
      Rejection("error"),
    ),
    (
      "def f(x):\n  return [1][hash(x) % 2] // (hash(x) % 3)",
      "'ab'",
      Rejection("nondeterministic"),
    ),
  ],
)
def test_an_error_task_raises_what_a_solver_can_deduce(
  executor, code, argument, want
):
  verdict = validation.submit_error_triplet(executor, code, argument).result()
  if isinstance(want, str):
    want = Triplet(code, argument, want)
  assert verdict == want


def test_induction_needs_every_case(executor):
  code = "def f(x):\n  return 6 // x"
  good = validation.submit_induction_task(executor, code, ("1", "2"), "m")
  assert good.result() == InductionTask(code, ("1", "2"), ("6", "3"), "m")
  bad = validation.submit_induction_task(executor, code, ("1", "0"), "m")
  assert bad.result() == Rejection("error")


def test_seeds_lose_comments_docstrings_and_globals():
  code = (
    "import math\nLIMIT = 3  # global\n"
    'def f(x):\n  "what it does"\n  # why\n  return math.floor(x)\nprint(1)'
  )
  assert rewriting.strip(code, rewriting.STRIPPED) == (
    "import math\n\ndef f(x):\n  return math.floor(x)"
  )
  assert rewriting.strip("def f(", rewriting.STRIPPED) == "def f("
  wide = "def f(x):\n  if x:\n    return 'a    b'\n  return ''"
  assert rewriting.strip(wide, rewriting.STRIPPED) == wide


@pytest.mark.parametrize("length", [10, 900, 1500, 3000])
@pytest.mark.parametrize("step", [" + x", ".real", "[0]", " if x else x"])
def test_a_long_expression_does_not_stop_seeding(length, step):
  code = f"def f(x):\n  return x{step * length}  # long"
  stripped = rewriting.strip(code, rewriting.STRIPPED)
  assert stripped == code or "#" not in stripped


def test_a_remark_in_an_input_is_refused(executor):
  code = "def f(x):\n  return x"
  for text, accepted in (("1 # it is 1", False), ("'# one'", True)):
    found = validation.submit_triplet(executor, code, text).result()
    assert isinstance(found, Rejection) is not accepted
