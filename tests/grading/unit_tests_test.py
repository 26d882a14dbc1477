"""Grading by unit tests: correct, wrong and cheating programs.

The items have the shape of HumanEval and MBPP items but are original.
"""

import json

import pytest

from azr_jax.executor import Result
from azr_jax.grading import __main__ as command
from azr_jax.grading import assertions, outcome, unit_tests
from azr_jax.grading.outcome import Outcome

PLUS = "def f(x):\n  return x + 1"
ASSERTS = "assert f(1) == 2\nassert f(2) == 3\nassert f(-1) == 0"
LOOP = "for i in range(3):\n  assert f(i) == i + 1"
BOTH = f"{ASSERTS}\n{LOOP}"


def grade(executor, code, tests, entry=None):
  read = assertions.read_tests(tests, entry)
  return unit_tests.submit(executor, code, read).result(60)


@pytest.mark.parametrize(
  "code, passed",
  [
    (PLUS, 4),
    ("def f(x): return x + 1.0", 4),
    ("f = (1).__add__", 4),
    ("def f(x): return x + 1 if x > 0 else 7", 2),
    ("def f(x): return 2", 1),
    ("def f(x): return str(x + 1)", 0),
    ("def f(x): print(x + 1)", 0),
    ("def g(x): return x + 1", 0),
    ("def f(x): return x +", 0),
    ("", 0),
    (" " * 70_000, 0),
  ],
)
def test_every_assertion_counts(executor, code, passed):
  report = grade(executor, code, BOTH)
  assert (report.passed, report.compared, report.trusted) == (passed, 3, 1)
  assert report.correct is (passed == 4)
  assert report.summary().startswith(
    f"{passed} of 4 passed, 3 compared, 1 trusted"
  )


@pytest.mark.parametrize(
  "tests, code, error",
  [
    (ASSERTS, "def f(x): return 6 // x", None),
    (ASSERTS, "def f(x): return {}[x]", "KeyError"),
    (ASSERTS, "def f(x):\n  while True: pass", "TimeoutError"),
    (LOOP, "def f(x): return 7", "AssertionError"),
    (LOOP, "def f(x):\n  while True: pass", "TimeoutError"),
    (LOOP, "def f(x): return x +", "SyntaxError"),
    ("import no_such\n" + LOOP, PLUS, "ModuleNotFoundError"),
    (ASSERTS, "\n", "NoProgram"),
  ],
)
def test_a_report_says_what_went_wrong(executor, tests, code, error):
  report = grade(executor, code, tests)
  assert not report.correct and report.error == error
  is_timeout = error == "TimeoutError"
  assert report.outcome is (
    Outcome.TIMEOUT if is_timeout else Outcome.INCORRECT
  )
  assert error is None or report.summary().endswith(f"; {error}")


LONG = list(range(12_000))
THREADED = (
  "import threading\ndef f(x):\n  found = []\n"
  "  thread = threading.Thread(target=lambda: found.append(x + 1))\n"
  "  thread.start()\n  thread.join()\n  return found[0]"
)


@pytest.mark.parametrize(
  "tests, code, holds",
  [
    ("assert len(f(6000)) == 6001", "def f(n): return str(10**n)", True),
    ("assert len(f(6000)) == 6001", "def f(n): return str(10**n)[1:]", False),
    (f"assert f(12000) == {LONG}", "def f(n): return list(range(n))", True),
    (f"assert {LONG} == f(12000)", "def f(n): return list(range(n))", True),
    (f"assert f(12000) != {LONG}", "def f(n): return list(range(n))", False),
    (f"assert f(12000) == {LONG}", "def f(n): return [*range(n), 1]", False),
    (f"assert f(12000) == {LONG}", "def f(n): return tuple(range(n))", False),
    (BOTH, THREADED, True),
    # A program's names do not shadow the harness's.
    (BOTH, f"{PLUS}\ndef isinstance(*x): pass\nlen = map = str = None", True),
  ],
  ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_the_sandbox_has_no_say(executor, tests, code, holds):
  report = grade(executor, code, tests)
  assert report.correct is holds, report
  assert not report.limit


def test_an_exception_named_like_a_limit_ends(executor):
  for name in ("Unserializable", "OutputTooLarge"):
    code = f"class {name}(Exception): pass\ndef f(x): raise {name}"
    assert grade(executor, code, ASSERTS).error == name


@pytest.mark.parametrize(
  "value, limit",
  [
    ("range(x)", ""),
    ("(i for i in range(x))", ""),
    ("[float('nan')] * 70_000", ""),
    ("[1j] * 70_000", "OutputTooLarge"),
  ],
)
def test_only_a_value_that_is_too_large_meets_a_limit(executor, value, limit):
  report = grade(executor, f"def f(x): return {value}", ASSERTS)
  assert (report.passed, report.limit) == (0, limit)
  # Another test also fails, without hitting a limit.
  report = grade(executor, f"def f(x): return {value}", BOTH)
  assert (report.passed, report.limit) == (0, "")


@pytest.mark.parametrize(
  "status, outputs, error, finished, limit",
  [
    ("ok", ("1", "1", "2"), None, 3, ""),
    ("error", ("1", None, "1"), "MemoryError", 3, "MemoryError"),
    ("error", ("1", None, "1"), "ValueError", 3, ""),
    ("error", ("2", None, "1"), "MemoryError", 3, ""),
    ("error", (None, None, None), "WorkerDied", 0, "WorkerDied"),
    ("timeout", ("1", None, None), "Asleep", 1, "Asleep"),
    ("timeout", ("1", None, None), "TimeoutError", 1, "short"),
    ("timeout", (None, None, None), "Asleep", 1, ""),
  ],
)
def test_a_limit_counts_if_it_ended_the_first_test_that_failed(
  status, outputs, error, finished, limit
):
  result = Result("", status, outputs, error, 0.0, finished)
  holds = [output == "1" for output in outputs]
  named = error if limit == "short" else limit
  assert outcome.limit_of(holds, result, is_short=True) == named
  assert outcome.limit_of(holds, result) == ("" if limit == "short" else limit)
  assert outcome.limit_of([True] * 3, result) == ""


ALWAYS_EQUAL = (
  "class E(int):\n  __eq__ = __le__ = __lt__ = lambda a, b: True\n"
  "  __sub__ = __rsub__ = __abs__ = lambda *a: E()\n  __hash__ = int.__hash__\n"
  "def f(x): return E()"
)
# Programs that shadow names used by the tests, or exit early.
FORGERIES = [
  "import sys; sys.exit(0)",
  "import os; os._exit(0)",
  "raise SystemExit(0)",
  "def f(x):\n  raise SystemExit(0)",
  "import os\ndef f(x): os._exit(0)",
  "import sys\ndef f(x): sys.exit(0)",
  "def f(x): raise KeyboardInterrupt",
  "def check(candidate): pass\ndef f(x): return 7",
  "range = all = zip = enumerate = lambda *a: ()\ndef f(x): return 7",
  "import builtins\nbuiltins.range = lambda *a: ()\ndef f(x): return 7",
  "__builtins__['range'] = lambda *a: ()\ndef f(x): return 7",
  "exec = compile = lambda *a: None\ndef f(x): return 7",
  "import builtins\nbuiltins.exec = lambda *a: None\ndef f(x): return 7",
  "import builtins\nbuiltins.AssertionError = ValueError\ndef f(x): return 7",
  "AssertionError = type('Fine', (SystemExit,), {})\ndef f(x): return 7",
  "globals = dict = lambda *a, **k: {}\ndef f(x): return 7",
  "for name in [*globals()]:\n  globals()[name] = lambda *a: ()",
  "globals().clear()",
  "def f(x): return 7\n'''",
  "def f(x): return 7\nif 0:\n  '''",
  "def f(x): return 7\nreturn",
  "def f(x): return 7\n\\",
  "__name__ = 'other'\ndef f(x): return 7",
  "def f(x):\n  import gc\n  return [o for o in gc.get_objects()\n"
  "    if isinstance(o, dict) and 'reference' in o]",
]


@pytest.mark.parametrize("code", FORGERIES)
@pytest.mark.parametrize("tests", [ASSERTS, LOOP])
def test_forging_does_not_pay(executor, code, tests):
  assert grade(executor, code, tests).passed == 0


@pytest.mark.parametrize(
  "test",
  [
    "assert f(1) == 2",
    "assert f(1) is True",
    "assert f(1)",
    "assert abs(f(1) - 2) < 1e-6",
    "assert math.isclose(f(1), 2)",
    "def check(candidate):\n  assert candidate(1) == 2\ncheck(f)",
  ],
)
def test_an_always_equal_object_equals_nothing_compared(executor, test):
  report = grade(executor, ALWAYS_EQUAL, test)
  assert (report.passed, report.compared, report.trusted) == (0, 1, 0)


OBJECTS = """
class Tree:
  def __init__(self, size): self.size = size
  def __len__(self): return self.size
def f(x):
  return Tree(x) if x is not None else None
"""


@pytest.mark.parametrize(
  "test, holds",
  [
    ("assert f(1)", True),
    ("assert f(0)", False),
    ("assert not f(0)", True),
    ("assert not f(1)", False),
    ("assert f(0) is not None", True),
    ("assert f(0) is None", False),
    ("assert f(None) is None", True),
    ("assert not f(None) is not None", True),
    ("assert f(1) is True", False),
    ("assert f(1) is not False", True),
    ("assert f(x=1)", True),
    ("assert f(1) == 1", False),
    ("assert f(1) != 2", False),
    ("assert abs(f(1) - 1) < 1e-6", False),
  ],
)
def test_the_truth_of_any_object_counts(executor, test, holds):
  report = grade(executor, OBJECTS, test)
  assert (report.passed, report.compared, report.trusted) == (holds, 1, 0)


@pytest.mark.parametrize(
  "code, holds",
  [
    ("def f(x):\n  return lambda: x", True),
    ("def f(x):\n  yield x", True),
    ("def f(x):\n  return [[0] * 1000] * 1000", True),
    ("class T:\n  def __bool__(self): return 1\ndef f(x): return T()", False),
    ("class T:\n  def __bool__(self): 1 / 0\ndef f(x): return T()", False),
    ("def g(x): return x", False),
    ("bool = lambda v: True\ndef f(x): return []", False),
    ("import builtins\nbuiltins.bool = len\ndef f(x): return []", False),
    ("def f(x): return object() if x", False),
    ('"""\ndef f(x): return 1', False),
  ],
)
def test_a_program_does_not_change_how_truth_is_found(executor, code, holds):
  assert grade(executor, code, "assert f(1)").correct is holds


def test_values_and_truths_of_one_function_count_together(executor):
  code = "def f(x):\n  return x if x < 5 else object()"
  tests = "assert f(1) == 1\nassert f(9)\nassert f(2) == 2\nassert not f(0)"
  report = grade(executor, code, tests)
  assert (report.passed, report.compared) == (4, 4) and report.correct


def test_a_patched_module_fools_trusted_assertions_only(executor):
  code = "import math\nmath.isclose = lambda *a: True\ndef f(x): return 7"
  tests = "import math\nassert math.isclose(f(1), 2)\n"
  loop = "for i in range(3):\n  assert math.isclose(f(i), i + 1)"
  report = grade(executor, code, tests + loop)
  assert (report.passed, report.compared, report.trusted) == (1, 1, 1)


def test_an_always_equal_object_fools_a_trusted_assertion(executor):
  # Trusted assertions share the program's process, and so its `==`.
  report = grade(executor, ALWAYS_EQUAL, BOTH)
  assert (report.passed, report.compared, report.trusted) == (1, 3, 1)
  assert not report.correct


@pytest.mark.parametrize("value", [b"True", b"2", b"7"])
def test_a_forged_report_is_a_guess(executor, value):
  # Forged reports: plain lines, and lines after a length prefix.
  framed = b"ok\n\n" + value
  for report in (
    value + b"\ndone\n",
    len(framed).to_bytes(8, "big") + framed,
  ):
    code = (
      f"import os\nfor descriptor in range(3, 20):\n"
      f"  try: os.write(descriptor, {report!r})\n  except OSError: pass\n"
      f"os._exit(0)"
    )
    # A forged value is compared like a real one.
    assert not grade(executor, code, "assert f(1) == 3").correct
    # Trusted assertions report success by a random token that is drawn for each
    # answer, so the program cannot know it.
    assert not grade(executor, code, LOOP).correct


SEARCH = """
import gc, sys
def f(*args):
  frame, objects = sys._getframe(1), gc.get_objects()
  while frame:
    objects += [frame.f_locals, frame.f_code.co_consts]
    frame = frame.f_back
  secret = "".join(reversed("71-terces"))
  return "found" if any(secret in repr(o) for o in objects) else "not found"
"""


def test_the_child_never_holds_a_compared_value(executor):
  tests = "assert f(1) == 'secret-17'\nassert f(2) == 'not found'"
  report = grade(executor, SEARCH, tests)
  assert (report.passed, report.compared, report.trusted) == (1, 2, 0)
  # The search itself works: it succeeds when the input is the secret.
  assert grade(executor, SEARCH, "assert f('secret-17') == 'found'").correct
  loop = "for _ in range(1):\n  assert f(0) == 'not found'"
  assert grade(executor, SEARCH, f"assert f(1) != 'secret-17'\n{loop}").correct


def test_each_call_meets_the_program_afresh(executor):
  code = "seen = []\ndef f(x):\n  seen.append(x)\n  return len(seen)"
  assert grade(executor, code, "assert f(1) == 1\nassert f(2) == 1").correct


def test_a_function_may_have_a_builtins_name(executor):
  code = "def sum(a, b): return a + b"
  loop = "for i in range(3):\n  assert sum(i, 1) == i + 1"
  assert grade(executor, code, f"assert sum(1, 2) == 3\n{loop}").correct
  check = f"def check(sum):\n  {loop.replace('  ', '    ')}"
  assert grade(executor, code, check, "sum").correct
  # Nothing says that these tests are about the program's own `sum`.
  assert not grade(executor, code, loop).correct


def test_tests_run_as_the_main_module(executor):
  tests = "if __name__ == '__main__':\n  assert f(i := 1) == 3"
  assert not grade(executor, PLUS, tests).correct
  assert grade(executor, PLUS, tests.replace("3", "2")).correct


def test_programs_keep_their_module(executor):
  code = (
    "from __future__ import annotations\nimport dataclasses\n"
    "@dataclasses.dataclass\nclass P:\n  x: int = 1\n"
    "def f(x):\n  return P(x).x + 1"
  )
  assert grade(executor, code, BOTH).correct


# Tests and programs in the format of the published benchmarks.
BELOW = """
METADATA = {"author": "us"}


def check(candidate):
    # Simple cases
    assert candidate([1, 2, 4, 20], 100) == True
    assert candidate([1, 20, 4, 10], 5) == False, "one is above"
    assert True, "This prints if this assert fails"
    # Edges
    assert candidate([], 0)
    assert not candidate([0], 0)
"""
BELOW_CODE = '''
from typing import List


def all_below(numbers: List[int], limit: int) -> bool:
    """ Whether all numbers are below the limit.
    >>> all_below([1], 2)
    True
    """
    return all(n < limit for n in numbers)
'''
MEAN = [
  "import math",
  "assert math.isclose(mean_distance([1.0, 2.0, 3.0]), 2 / 3, rel_tol=1e-6)",
  "assert abs(mean_distance([1.0, 2.0]) - 0.5) < 1e-6",
  "assert mean_distance([4.0]) == 0",
]
MEAN_CODE = """
def mean_distance(xs):
    mean = sum(xs) / len(xs)
    return sum(abs(x - mean) for x in xs) / len(xs)
"""
COUNTS = [
  "assert count_items([10, 10, 20]) == ({10: 2, 20: 1})",
  "assert count_items([]) == {}",
  "assert set(count_items((3, 4, 3))) == set((3, 4))",
]
COUNTS_CODE = """
import collections
def count_items(items):
  return collections.Counter(items)
"""
ROOT = """
import math
import random


def check(candidate):
    rng = random.Random(7)
    for _ in range(20):
        a, b = rng.randint(1, 9), rng.randint(-9, 9)
        root = candidate([b, a])
        assert math.fabs(b + a * root) < 1e-4
"""
ROOT_CODE = "def zero(xs):\n    return -xs[0] / xs[1]\n"


@pytest.mark.parametrize(
  "code, tests, entry, wrong, summary",
  [
    (BELOW_CODE, BELOW, "all_below", ("all(", "any("), "4 compared, 0 trusted"),
    (MEAN_CODE, MEAN, None, ("abs(", "("), "2 compared, 1 trusted"),
    (
      COUNTS_CODE,
      COUNTS,
      None,
      (".Counter", ".deque"),
      "2 compared, 1 trusted",
    ),
    (ROOT_CODE, ROOT, "zero", ("-xs", "xs"), "0 compared, 1 trusted"),
  ],
)
def test_items_of_the_published_shapes(
  executor, code, tests, entry, wrong, summary
):
  case = {"id": 7, "kind": "unit_tests", "tests": tests, "entry": entry}
  for text, correct in ((code, True), (code.replace(*wrong), False)):
    line = json.dumps(case | {"code": text})
    verdict = command.submit(executor, line).result(60)
    assert verdict["id"] == 7 and verdict["correct"] is correct
    assert verdict["score"] == float(correct)
    assert summary in verdict["detail"]
    assert verdict["detail"].startswith("unit_tests: ")


@pytest.mark.parametrize(
  "change, wanted",
  [
    ({"tests": "assert f(1) =="}, "tests is not a program: SyntaxError"),
    ({"tests": ""}, "tests has no assertion"),
    ({"tests": []}, "tests has no assertion"),
    ({"tests": ["assert f(1) == 2", 3]}, "expected a list of strings"),
    ({"tests": None}, "tests is None; expected a string"),
    ({"tests": {}}, "tests is {}; expected a string"),
    ({"code": 1}, "code is 1; expected a string"),
    ({"entry": 1}, "entry is 1; expected a string"),
    ({"entry": "f("}, "expected a function's name"),
    ({"tests": BELOW}, "never called; expected entry"),
  ],
)
def test_a_bad_case_says_why(executor, change, wanted):
  case = {"id": "x", "kind": "unit_tests", "code": PLUS, "tests": ASSERTS}
  line = json.dumps(case | change)
  verdict = command.submit(executor, line).result(60)
  assert verdict["correct"] is False and verdict["score"] == 0.0
  assert verdict["detail"].startswith("bad case: ")
  assert wanted in verdict["detail"]
