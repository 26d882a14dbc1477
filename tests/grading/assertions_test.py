"""Unit tests split into compared and trusted assertions, or are refused."""

import ast

import pytest

from azr_jax.grading import assertions
from azr_jax.grading.assertions import BadTests, read_tests


def one(test):
  """Returns the only assertion of a test, which must be a compared one."""
  tests = read_tests(f"assert {test}")
  assert tests.trusted == "" and tests.trusted_count == 0
  (assertion,) = tests.compared
  return assertion


@pytest.mark.parametrize(
  "test, arguments, right, wrong",
  [
    ("f(1) == 2", "1", [2, 2.0], [1, None]),
    ("2 == f(1)", "1", [2], [1]),
    ("f() == []", "", [[]], [(), None, 0]),
    ("f(1, k=[2]) == 2, 'why'", "1, k=[2]", [2], [1]),
    ("f('a)', b'') == {1: {2}}", "'a)', b''", [{1: {2}}], [{1: [2]}]),
    ("f((1, 2)) == {'a': 1}", "(1, 2)", [{"a": 1}], [[]]),
    ("f(-1.5) == float('inf')", "-1.5", [float("inf")], [0]),
    ("f({1, 2}) == set([1])", "{1, 2}", [{1}, frozenset({1})], [[1]]),
    ("f(set()) != 3", "set()", [2, None], [3, 3.0]),
    ("f(1) is None", "1", [None], [0, False]),
    ("f(1) is True", "1", [True], [1, "a"]),
    ("f(1) is not None", "1", [0], [None]),
    ("f(1)", "1", [1, "a", [0]], [0, "", None, []]),
    ("not f(1)", "1", [0, None, []], [1]),
    ("not f(1) == 2", "1", [1], [2]),
    ("abs(f(1) - 1.5) < 1e-6", "1", [1.5, 1.5 + 1e-9], [1.4, float("nan")]),
    ("abs(2 - f(1)) <= 1", "1", [1, 2, 3, True], [0, 4]),
    ("math.isclose(f(1), 1.5)", "1", [1.5], [1.50001]),
    ("math.isclose(2, f(1), rel_tol=0, abs_tol=1)", "1", [1, 3], [4]),
    ("not math.isclose(f(1), 2)", "1", [3], [2]),
  ],
)
def test_compared(test, arguments, right, wrong):
  assertion = one(test)
  assert (assertion.entry, assertion.arguments) == ("f", arguments)
  assert [v for v in right if not assertion.holds(v)] == []
  assert [v for v in wrong if assertion.holds(v)] == []


@pytest.mark.parametrize(
  "line",
  [
    "def f(x):...",
    "def g{}(x): assert x\ng{}(1)",
    "assert f({}) == {}",
    "assert not f({})",
    "for i in range({}): assert f(i)",
    "x = {}",
  ],
)
def test_reading_takes_work_in_proportion_to_the_text(line, monkeypatch):
  visited = 0
  walk = ast.walk

  def counted(node):
    nonlocal visited
    for part in walk(node):
      visited += 1
      yield part

  def work(lines):
    nonlocal visited
    visited = 0
    text = "\n".join(line.replace("{}", str(i)) for i in range(lines))
    read_tests(f"{text}\nassert f(1) == 2")
    return visited

  monkeypatch.setattr(ast, "walk", counted)
  assert work(400) <= 12 * work(50)


@pytest.mark.parametrize(
  "test, truthiness_only",
  [
    ("f(1)", True),
    ("not f(1)", True),
    ("f(1) is None", True),
    ("not f(1) is not True", True),
    ("f(1) == True", False),
    ("f(1) != 2", False),
    ("abs(f(1) - 2) < 1", False),
    ("math.isclose(f(1), 2)", False),
  ],
)
def test_only_truth_and_identity_need_no_plain_value(test, truthiness_only):
  assert one(test).truthiness_only is truthiness_only


@pytest.mark.parametrize(
  "test",
  [
    "f(x) == 2",
    "f(1) == f(2)",
    "f(1) == 1 + 1",
    "f(1) == x",
    "f(*[1]) == 2",
    "f(**{}) == 2",
    "f(1 + 1) == 2",
    "f(1) < 2",
    "f(1) == 2 == 2",
    "f(1) in [2]",
    "f(1) is 2",
    "1 in f(1)",
    "len(f(1)) == 2",
    "set(f(1)) == {1}",
    "f(1).x == 2",
    "m.f(1) == 2",
    "f(1)[0] == 2",
    "f(1)(2) == 2",
    "(lambda x: x)(1) == 1",
    "f(1) == Counter('a')",
    "f(1) == Fraction(1, 2)",
    "f(Fraction(1, 2)) == 1",
    "f(1) == {[1]}",
    "f(1) == 2 and f(2) == 3",
    "all(f(i) == i for i in range(3))",
    "isinstance(f(1), int)",
    "abs(f(1)) < 1",
    "abs(f(1) - 2) < x",
    "abs(f(1) - 2) > 1",
    "round(f(1), 2) == 1.5",
    "math.isclose(f(1), 2, rel_tol=x)",
    "(f(1), 2)",
    "False",
    "'' 'a' == f",
  ],
)
def test_trusted(test):
  tests = read_tests(f"assert {test}")
  assert tests.compared == () and tests.trusted_count == 1
  assert tests.trusted.startswith("assert ")


@pytest.mark.parametrize(
  "setting",
  [
    "def f(x): return 2",
    "f = g",
    "import f",
    "from m import g as f",
    "for f in (g,): pass",
    "class f: pass",
    "with g as f: pass",
    "if (f := g): pass",
    "try: g\nexcept E as f: pass",
    "match g:\n  case f: pass",
    "def g():\n  global f\n  f = 2",
    "random.seed(0)",
    "g.cache = {}",
    "d['f'] = 2",
    "del g",
  ],
)
def test_what_stands_before_may_change_the_call(setting):
  tests = read_tests(f"{setting}\nassert f(1) == 2")
  assert tests.compared == () and tests.trusted_count == 1


@pytest.mark.parametrize(
  "setting",
  [
    "'''what f does'''",
    "import math",
    "from m import g",
    "METADATA = {'author': 'x'}",
    "x = [f(i) for i in range(3)]",
    "def g(f): return f(1)",
    "for i in range(3): assert f(i) == i",
    "assert True, 'reached'",
    "pass",
  ],
)
def test_what_stands_before_does_not_matter(setting):
  tests = read_tests(f"{setting}\nassert f(1) == 2")
  assert [a.entry for a in tests.compared] == ["f"]
  assert "f(1) == 2" not in tests.trusted


@pytest.mark.parametrize("shadow", ["abs = len", "def abs(x): return 0"])
def test_a_tolerance_by_another_abs_is_trusted(shadow):
  tests = read_tests(f"{shadow}\nassert abs(f(1) - 2) < 1")
  assert tests.compared == ()


@pytest.mark.parametrize("test", ["f(1) == set([1])", "f(set([1])) == 1"])
def test_a_literal_by_another_set_is_trusted(test):
  tests = read_tests(f"def set(x): return x\nassert {test}")
  assert tests.compared == () and tests.trusted_count == 1


CHECK = """
def check(candidate):
  assert True, 'begin'
  assert candidate(1) == 2
  for i in range(3):
    assert candidate(i) == i + 1
  assert candidate(2) == 3
"""


@pytest.mark.parametrize(
  "text, entry",
  [
    (CHECK, "g"),
    (CHECK + "check(g)", None),
    (CHECK + "check(g)", "h"),
    (CHECK.replace("candidate", "f") + "check(g)", None),
  ],
)
def test_check(text, entry):
  tests = read_tests(text, entry)
  found = [(a.entry, a.arguments) for a in tests.compared]
  assert found == [("g", "1"), ("g", "2")]
  assert tests.trusted_count == 1 and "g" in tests.called
  assert tests.trusted.endswith("check(g)") and "== 3" not in tests.trusted


@pytest.mark.parametrize(
  "text",
  [
    CHECK + "check(g)\ncheck(h)",
    CHECK + "g = h\ncheck(g)",
    CHECK + "check(candidate=g)",
    CHECK + "check(lambda x: x)",
    CHECK + "if __name__ == '__main__':\n  check(g)",
    CHECK + CHECK + "check(g)",
    CHECK.replace("candidate)", "candidate, x=1)") + "check(g)",
    CHECK.replace("assert True", "candidate = g\n  assert True") + "check(g)",
    CHECK.replace("assert True", "return\n  assert True") + "check(g)",
    CHECK.replace("assert True", "random.seed(0)\n  assert True") + "check(g)",
    CHECK + "random.seed(0)\ncheck(g)",
    "@twice" + CHECK + "check(g)",
  ],
)
def test_a_check_that_is_more_than_its_body_is_trusted(text):
  tests = read_tests(text)
  assert tests.compared == () and tests.trusted_count >= 3


def test_expected_values_are_not_in_the_trusted_program():
  text = "assert f(1) == 'value 1'\nassert f(x) == 2\nassert f(2) == 'value 2'"
  tests = read_tests(text)
  assert tests.trusted == "assert f(x) == 2"
  assert len(tests.compared) == 2


@pytest.mark.parametrize(
  "text, entry, wanted",
  [
    ("assert f(1) ==", None, "tests is not a program: SyntaxError"),
    ("(" * 1000, None, "tests is not a program: too many open brackets"),
    ("x" * 300_000, None, "expected at most"),
    ("assert x" + ".a" * 900, None, "too deep"),
    ("", None, "tests has no assertion"),
    ("f(1)", None, "tests has no assertion"),
    ("assert True", None, "tests has no assertion"),
    (CHECK, None, "check has assertions and is never called; expected entry"),
    ("def test_f():\n  assert f(1) == 2", None, "test_f has assertions and is"),
    ("class T:\n  def t(self):\n    assert f(1)", "f", "T has assertions"),
    (CHECK, "g(", "entry is 'g('; expected a function's name"),
    (CHECK, "None", "entry is 'None'; expected a function's name"),
    (CHECK, "a.b", "entry is 'a.b'; expected a function's name"),
  ],
)
def test_bad_tests(text, entry, wanted):
  with pytest.raises(BadTests, match=".") as error:
    read_tests(text, entry)
  assert wanted in str(error.value)


def test_nothing_is_run():
  text = "raise SystemExit\nassert __import__('os').system('true') == 0"
  tests = assertions.read_tests(text)
  assert tests.compared == () and tests.trusted_count == 2
