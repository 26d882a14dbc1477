"""Metrics of programs: complexity and distance."""

import ast
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax.corpora.programs import heldout
from azr_jax.tasks.programs import measures

FLAT = "def f(x):\n  return x + 1\n"
NESTED = """
def f(x):
  for i in range(x):
    if i % 2 and x:
      while x > i:
        x -= i
  return x
"""


def test_a_nested_program_is_more_complex():
  flat = measures.measure(FLAT, [])
  nested = measures.measure(NESTED, [])
  # Contributions: for 1, if 2, and 1, while 3.
  assert nested["cognitive"] == 7 and flat["cognitive"] == 0
  # One path, plus one for each of for, if, and, while.
  assert nested["cyclomatic"] == 5 and flat["cyclomatic"] == 1
  # The volume is N log2 n: one operator and two operands give 3 log2 3.
  assert flat["volume"] == pytest.approx(4.754888, abs=1e-5)
  assert nested["effort"] > flat["effort"]
  assert nested["maintainability"] < flat["maintainability"]
  assert "distance" not in flat
  with pytest.raises(SyntaxError):
    measures.measure("def f(", [])


def test_grams_of_a_small_tree():
  # The tree is Expression -> BinOp -> (a, Add, b).
  tree = ast.parse("a+b", mode="eval")
  grams = measures.profile(tree)
  a, add, b = "Name 'a'", "Add", "Name 'b'"
  binary = ("Expression", "BinOp")
  assert dict(grams) == {
    ("*", "Expression", "*", "*", "BinOp"): 1,
    ("*", "Expression", "*", "BinOp", "*"): 1,
    ("*", "Expression", "BinOp", "*", "*"): 1,
    (*binary, "*", "*", a): 1,
    (*binary, "*", a, add): 1,
    (*binary, a, add, b): 1,
    (*binary, add, b, "*"): 1,
    (*binary, b, "*", "*"): 1,
    ("BinOp", a, "*", "*", "*"): 1,
    ("BinOp", add, "*", "*", "*"): 1,
    ("BinOp", b, "*", "*", "*"): 1,
  }
  # With c instead of b, four of the eleven grams differ.
  other = measures.profile(ast.parse("a+c", mode="eval"))
  assert measures.distance(grams, other) == pytest.approx(1 - 2 * 7 / 22)


PROGRAMS = st.sampled_from([FLAT, NESTED, "x = 1", "def f(y):\n  return y * 2"])


@given(PROGRAMS, PROGRAMS)
def test_distances_are_symmetric_and_zero_for_equal_programs(code, other):
  a, b = (measures.profile(ast.parse(text)) for text in (code, other))
  assert measures.distance(a, b) == measures.distance(b, a)
  assert 0 <= measures.distance(a, b) <= 1
  assert (measures.distance(a, b) == 0) == (code == other)


def test_a_larger_change_has_a_larger_distance():
  tree = measures.profile(ast.parse(NESTED))
  small = measures.profile(ast.parse(NESTED.replace("x -= i", "x -= 2")))
  large = measures.profile(ast.parse(FLAT))
  assert measures.distance(tree, small) < measures.distance(tree, large)


def test_most_nodes_of_a_huge_program_are_ignored():
  code = f"x = {list(range(5000))}"
  tree = ast.parse(code)
  start = time.process_time()
  grams = measures.profile(tree)
  assert time.process_time() - start < 1
  # Each visited leaf has one gram, and the list has one per child.
  assert grams.total() <= measures.MAX_NODES + 5_010


def test_the_halstead_score_of_the_published_code():
  assert measures.halstead_score(5e3, 5, 250) == pytest.approx(0.5)
  assert measures.halstead_score(1e9, 99, 9e9) == pytest.approx(1.0)


def test_real_programs_have_all_metrics():
  codes = [entry.task.code for entry in heldout.read()[:20]]
  for code in codes:
    metrics = measures.measure(code, codes[:3])
    assert set(metrics) == {
      "cognitive",
      "cyclomatic",
      "volume",
      "effort",
      "maintainability",
      "nodes",
      "distance",
    }
    assert 0 <= metrics["distance"] <= 1
    assert metrics["maintainability"] <= 100
