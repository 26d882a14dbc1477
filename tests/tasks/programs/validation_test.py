"""Validation with the real executor, and the cleanup of seed programs."""

import pytest
from typed import instance_of

from azr_jax.executor import Executor
from azr_jax.systems.azr.extensions import rewriting
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
    ("def f(x):\n  return x", "1) or (2", "input"),
  ],
)
def test_invalid_triplets(executor, code, argument, reason):
  rejection = validation.submit_triplet(executor, code, argument).result()
  assert rejection == Rejection(reason)


@pytest.mark.parametrize(
  "submit, code, detail",
  [
    (
      validation.submit_triplet,
      "def f(x):\n  return x + 'a'",
      "f(2) fails with TypeError.",
    ),
    (
      validation.submit_triplet,
      "import time\ndef f(x):\n  return x",
      "It has `import time`.",
    ),
    (
      validation.submit_error_triplet,
      "def f(x):\n  return x",
      "f(2) returns 2.",
    ),
  ],
)
def test_a_rejection_tells_what_the_program_does(
  executor, submit, code, detail
):
  rejection = submit(executor, code, "2").result()
  assert isinstance(rejection, Rejection) and rejection.detail == detail


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
    ("def f(x):\n  return x", "hello", Rejection("input")),
    ("def f(x):\n  return x", "1 / 0", Rejection("input")),
    ("def f(x):\n  return x", "1, 2", Rejection("error")),
    ("1 / 0\ndef f(x):\n  return x", "1", Rejection("error")),
    ("text = 'def f('", "1", Rejection("error")),
    ("def f(x):\n  return " + "1+" * 3000 + "1", "1", Rejection("error")),
    ("def f(x):\n  return '\ud800'[x]", "1", Rejection("error")),
    # Outside of the executor, Python raises another exception or none.
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
    ("def f(x):\n  return x", "0) + (1", Rejection("input")),
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
      # The exception depends on the hash seed.
      "E = [KeyError, TypeError, EOFError, NameError]\n"
      "def f(x):\n  raise E[hash(x) % 4]",
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


@pytest.mark.parametrize(
  "argument, literal",
  [
    ("[0]*3, 2", "[0, 0, 0], 2"),
    ("list(range(4))", "[0, 1, 2, 3]"),
    ("'ab' * 2", "'abab'"),
    ("2 ** 10", "1024"),
    ("[x * 2 for x in range(4)]", "[0, 2, 4, 6]"),
    ("dict(a=1, b=2)", "{'a': 1, 'b': 2}"),
    ("math.pi", "3.141592653589793"),
    ("x=1 + 1, *[0]", "0, x=2"),
    ("**{'x': 1, 'y': {}}", "x=1, y={}"),
    ("float('-inf') * 0", "float('nan')"),
    ("collections.deque('ab')", "deque(['a', 'b'])"),
    ("'# one' * 2", "'# one# one'"),
    # Python drops a value here, which could be a hint to the solver.
    ("{1: 'hint', 1: 2}", "{1: 2}"),
    ("[{1: 'hint', True: 2}]", "[{1: 2}]"),
    ("x=OrderedDict([(1, 'hint'), (1, 2)])", "x=OrderedDict([(1, 2)])"),
    ("*[]", ""),
    # Literals are unchanged.
    ("[1,2]", "[1,2]"),
    ("-5", "-5"),
    ("xs=[1, 2], k=0", "xs=[1, 2], k=0"),
    ("{8, 0}", "{8, 0}"),
    ("{1:2, '1':2}", "{1:2, '1':2}"),
    ("float('inf')", "float('inf')"),
    ("", ""),
  ],
)
def test_inputs_become_literals(executor, argument, literal):
  code = "def f(*values, **named):\n  return repr((values, named))"
  task = validation.submit_triplet(executor, code, argument).result()
  assert isinstance(task, Triplet) and task.input == literal
  task = validation.submit_error_triplet(
    executor, code.replace("repr", "1 / "), argument
  ).result()
  task = instance_of(Triplet, task)
  assert task.input == literal and task.output == "TypeError"


@pytest.mark.parametrize(
  "argument, reason",
  [
    ("lambda x: x * 2, 5", "input"),
    ("P(3)", "input"),
    ("limit", "input"),
    ("f(1)", "input"),
    ("(x := 5)", "input"),
    ("__import__('math').pi", "input"),
    ("object()", "input"),
    ("range(3)", "input"),
    ("'a' * 10 ** 12", "input"),
    ("10 ** 5000", "input"),
    ("1 / 0", "input"),
    ("**{'a b': 1}", "input"),
    ("'a' * 5000", "oversize"),
    ("1+" * 3000 + "1", "oversize"),
    ("list({'a', 'b', 'c', 'd', 'e', 'f'})", "nondeterministic"),
  ],
)
def test_inputs_without_a_literal_are_refused_by_name(
  executor, argument, reason
):
  code = "limit = 1\nclass P(int): pass\ndef f(*v, **k):\n  return 1"
  rejection = validation.submit_triplet(executor, code, argument).result()
  assert rejection == Rejection(reason)


def test_an_input_without_an_end_is_a_timeout(impatient_executor):
  rejection = validation.submit_triplet(
    impatient_executor, "def f(x):\n  return 1", "9 ** 9 ** 9"
  ).result()
  assert rejection == Rejection("timeout")


def test_inputs_of_an_induction_task_become_literals(executor):
  def submit(*inputs):
    code = "def f(x=1):\n  return x"
    return validation.submit_induction_task(
      executor, code, inputs, "m"
    ).result()

  task = instance_of(InductionTask, submit("2", "1 + 2", "", "'a' * 2"))
  assert task.inputs == ("2", "3", "", "'aa'")
  assert task.outputs == ("2", "3", "1", "'aa'")
  assert submit("3", "1 + 2") == Rejection("input")  # the same case twice


def test_an_output_depends_on_the_literal_only(executor):
  # The rows are one shared list in the expression but three in the literal.
  code = "def f(x):\n  x[0].append(1)\n  return x"
  task = validation.submit_triplet(executor, code, "[[]] * 3").result()
  assert task == Triplet(code, "[[], [], []]", "[[1], [], []]")


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
