"""Validation by the real executor, and the clean-up of seed programs."""

import pytest

from azr_jax.executor import Executor
from azr_jax.systems.azr.appendix import rewriting
from azr_jax.tasks.programs import validation
from azr_jax.tasks.programs.task import InductionTask, Triplet
from azr_jax.tasks.programs.validation import Rejection

LOOP = "def f(x):\n  while True: pass"


@pytest.fixture(scope="module")
def impatient_executor():
  with Executor(workers=2, timeout_s=0.3, memory_mb=512) as pool:
    yield pool


@pytest.mark.parametrize(
  "code, argument, output",
  [
    ("def f(x):\n  return x + 1", "2", "3"),
    ("def f(a, b=2):\n  return {a, b}", "3", "{2, 3}"),
    ("import math\ndef f(x):\n  return math.sqrt(x)", "4", "2.0"),
  ],
)
def test_valid_triplets(executor, code, argument, output):
  task = validation.submit_triplet(executor, code, argument).result()
  assert task == Triplet(code, argument, output)


@pytest.mark.parametrize(
  "code, argument, reason",
  [
    ("def f(x):\n  return x +", "2", "error"),
    ("def f(x):\n  raise StopIteration", "2", "error"),
    ("import time\ndef f(x):\n  return x", "2", "blocked"),
    ("import os\ndef f(x):\n  return os.path.join(x)", "'a'", "blocked"),
    ("def f(x):\n  return list(set(x))", "'hello world'", "nondeterministic"),
    ("def f(x):\n  return id(x)", "[]", "nondeterministic"),
    ("def f(x):\n  x = 1", "2", "no_output"),
    ("def f(x):\n  return 'a' * x", "5000", "oversize"),
    ("def f(x):\n  return x", "1) or (2", "error"),
  ],
)
def test_invalid_triplets(executor, code, argument, reason):
  rejection = validation.submit_triplet(executor, code, argument).result()
  assert rejection == Rejection(reason)


@pytest.mark.parametrize(
  "submit", [validation.submit_triplet, validation.submit_error_triplet]
)
def test_endless_loops_are_rejected(impatient_executor, submit):
  assert submit(impatient_executor, LOOP, "2").result() == Rejection("timeout")


def test_forbidden_words_in_a_string_are_no_imports(executor):
  code = "def f(x):\n  s = 'time flies'  # random\n  return s"
  task = validation.submit_triplet(executor, code, "1").result()
  assert isinstance(task, Triplet)


@pytest.mark.parametrize(
  "code, argument, expected",
  [
    ("def f(x):\n  return x[0]", "[]", "IndexError"),
    ("def f(x):\n  return 1 / x", "0", "ZeroDivisionError"),
    ("def f(x):\n  return f(x)", "0", "RecursionError"),
    ("def f(x):\n  raise KeyError(x)", "0", "KeyError"),
    ("def f(x):\n  return x", "0", Rejection("no_error")),
    # The exception does not come from `f`.
    ("def f(x):\n  return x", "hello", Rejection("error")),
    ("def f(x):\n  return x", "1 / 0", Rejection("error")),
    ("def f(x):\n  return x", "1, 2", Rejection("error")),
    ("1 / 0\ndef f(x):\n  return x", "1", Rejection("error")),
    ("text = 'def f('", "1", Rejection("error")),
    ("def f(x):\n  return " + "1+" * 3000 + "1", "1", Rejection("error")),
    ("def f(x):\n  return '\ud800'[x]", "1", Rejection("error")),
    # Outside of the executor Python would raise another exception, or none.
    ("def f(x):\n  return open(x)", "'a'", Rejection("error")),
    ("def f(x):\n  return 10 ** x", "5000", Rejection("error")),
    # The exception is not built in.
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
def test_error_tasks_raise_exceptions_that_a_solver_can_deduce(
  executor, code, argument, expected
):
  task = validation.submit_error_triplet(executor, code, argument).result()
  if isinstance(expected, str):
    expected = Triplet(code, argument, expected)
  assert task == expected


def test_every_case_of_an_induction_task_must_run(executor):
  code = "def f(x):\n  return 6 // x"
  valid = validation.submit_induction_task(executor, code, ("1", "2"), "m")
  assert valid.result() == InductionTask(code, ("1", "2"), ("6", "3"), "m")
  invalid = validation.submit_induction_task(executor, code, ("1", "0"), "m")
  assert invalid.result() == Rejection("error")


def test_seed_programs_lose_comments_docstrings_and_globals():
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
def test_long_expressions_are_stripped_or_kept(length, step):
  code = f"def f(x):\n  return x{step * length}  # long"
  stripped = rewriting.strip(code, rewriting.STRIPPED)
  assert stripped == code or "#" not in stripped


def test_inputs_with_comments_are_refused(executor):
  code = "def f(x):\n  return x"
  for text, accepted in (("1 # it is 1", False), ("'# one'", True)):
    task = validation.submit_triplet(executor, code, text).result()
    assert isinstance(task, Rejection) is not accepted
