"""Comparing mathematical answers: rules, algebra, tolerance."""

import json
import pathlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azr_jax.executor import Executor, Job
from azr_jax.grading.mathematics import grader, notation, numbers

FIXTURE = pathlib.Path(__file__).parents[1] / "fixtures" / "math_answers.jsonl"
ANSWERS = [
  json.loads(line)["answer"] for line in FIXTURE.read_text().splitlines()
]


@pytest.fixture(name="executor", scope="module")
def make_executor():
  with Executor(workers=1, timeout_s=2.0, memory_mb=1024) as executor:
    yield executor


EQUAL = [
  ("1/2", r"\dfrac{1}{2}"),
  ("0.5", r"\frac12"),
  (r"\frac{-1}{3}", r"-\frac{1}{3}"),
  ("1,000", "1000"),
  ("1000", r"1{,}000"),
  (r"2\frac{1}{3}", "7/3"),
  (r"3\times10^{8}", "3e8"),
  (r"5\text{ cm}", "5"),
  ("12", "12 dollars"),
  (r"3 \mathrm{~m}", "3"),
  (r"50\%", "50"),
  (r"90^\circ", "90"),
  (r"\$18", "18"),
  ("x=5", "5"),
  ("n = 4", "4"),
  ("x=5", "x = 5.0"),
  ("(C)", r"\text{C}"),
  ("C", "C."),
  ("East", r"\text{east}"),
  ("1,2", "2, 1"),
  (r"\{1,2\}", r"\left\{2,1\right\}"),
  ("(1,2)", r"\left( 1, 2 \right)"),
  ("[0,1)", r"\left[0, 1\right)"),
  (r"\sqrt3", r"\sqrt{3}"),
  ("113", r"\textbf{(113) }"),
  ("073", "73"),
  ("$0,-1,-\\frac{3}{2}$", "-1, -1.5, 0"),
  ("(1,2),(3,4)", "(3,4),(1,2)"),
  ("3 1/2", "7/2"),
  ("1 000", "1000"),
  ("25_6", "25_{6}"),
  ("12", r"12 \text{ square units}"),
  ("1,100", "1100"),
  ("1,100", "100, 1"),
  ("x=3, y=-1", "3, -1"),
  ("x=3, y=-1", "y=-1, x=3"),
  ("x=1, x=2", "2, 1"),
  ("No", "no"),
  (r"\frac{1}{3}", "0.(3)"),
  (r"\frac{16}{99}", r".\overline{16}"),
  (r"\frac{41}{333}", r"0.\dot{1}2\dot{3}"),
  (r"\frac{4}{33}", r"0.\dot{1}\dot{2}"),
  (r"\mathbb{R}", r"\text{All real numbers}"),
  (r"(-\infty,\infty)", "all reals"),
]
UNEQUAL = [
  ("23", "2,3"),
  ("(12)", "(1,2)"),
  ("(1,2)", "(2,1)"),
  ("[0,1)", "(0,1)"),
  ("1", "2"),
  ("0.5", "0.51"),
  (r"5\text{ cm}", r"5\text{ m}"),
  ("x=5", "y=5"),
  ("A", "B"),
  ("x", "X"),
  ("", ""),
  ("5", ""),
  ("2", "2 and 3"),
  ("5", "5x"),
  ("1,2,2", "1,1,2"),
  ("10", "1e400000000"),
  (r"\frac{1}{0}", "0"),
  ("5", "5 million"),
  ("5", "5 squared"),
  ("6", "6 ab"),
  ("3", r"3\text{x}"),
  ("5", r"5\text{i}"),
  ("2 pi", "2"),
  ("25_6", "25_7"),
  ("25_6", "17"),
  ("3 1/2", "31/2"),
  ("12", "1 2"),
  ("2", "2n"),
  ("2", "2 n"),
  ("6", "(" * 400 + "6" + ")" * 400),
  ("1, 100", "1100"),
  ("12345", "12, 345"),
  ("x=3,y=-1", "-1,3"),
  ("a = 332, b = 7", "7, 332"),
  ("AB", "ab"),
  ("e", "E"),
  (r"\pi", "3.141593"),
  (r"\ln 2", "0.693147"),
  (r"3\sqrt{111}", "31.606961"),
  ("0.3", "0.(3)"),
  (r"\frac{1}{3}", r"0.()"),
  (r"\frac{41}{333}", r"0.\dot{1}23"),
  (r"\frac{41}{333}", r"0.\dot{1}2\dot{a}"),
  (r"[0,\infty)", r"\text{all real numbers}"),
  ("1", "\u2460"),  # `isdigit` accepts a circled digit, `int` does not.
  ("3", "0.(\u2460)"),
  (r"5\text{ cm}", "\u2460_\u2460"),
  ("1", r"0.\text{dot}"),
  ("1", r"0.\mathrm{overline}1"),
]


@pytest.mark.parametrize("reference, answer", EQUAL)
def test_rules_find_equal_answers_equal(equal, reference, answer):
  assert equal(reference, answer)
  assert equal(answer, reference)


@pytest.mark.parametrize("reference, answer", UNEQUAL)
def test_rules_find_other_answers_unequal(equal, reference, answer):
  assert not equal(reference, answer)
  assert not equal(answer, reference)


@pytest.mark.parametrize("index", range(len(ANSWERS)))
def test_published_references_equal_themselves_and_not_the_next(equal, index):
  answer, other = ANSWERS[index], ANSWERS[index - 1]
  assert equal(answer, answer)
  assert equal(answer, f"${answer}$")
  assert not equal(answer, other)


@pytest.mark.parametrize("reference, answer", UNEQUAL)
def test_algebra_does_not_undo_what_rules_tell_apart(
  executor, reference, answer
):
  assert not grader.submit(executor, reference, answer).result(60)


def test_tolerance_is_of_numbers(equal):
  close = numbers.Tolerance(absolute=0.1)
  assert equal("2.5", "2.6", close)
  assert not equal("2.5", "2.61", close)
  assert equal("1000", "1009", numbers.Tolerance(relative=0.01))
  assert equal("(1,2)", "(1.05,2)", close)


@given(st.fractions(max_denominator=999))
def test_every_way_to_write_a_number_is_the_same_number(value):
  top, bottom = value.numerator, value.denominator
  for text in (
    f"{top}/{bottom}",
    rf"\frac{{{top}}}{{{bottom}}}",
    rf"$ \dfrac{{{top}}}{{{bottom}}} $",
  ):
    assert numbers.read(notation.read(text)) == Fraction(top, bottom)


@given(st.text(alphabet=r"\{}()[],.$0123abx=/^ ", max_size=30))
def test_any_text_gives_an_answer_of_rules(equal, text):
  assert equal(text, "1") in (True, False)


@given(st.lists(st.integers(-99, 99), min_size=2, max_size=6))
def test_lists_are_equal_in_any_order(equal, values):
  text = ", ".join(map(str, values))
  assert equal(text, ", ".join(map(str, reversed(values))))


@pytest.mark.parametrize(
  "reference, answer, correct",
  [
    ("x^2-1", "(x-1)(x+1)", True),
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", True),
    ("4 \\pi^{2}-1", r"(2\pi-1)(2\pi+1)", True),
    (r"(-\infty,2)\cup(3,\infty)", r"(3,\infty)\cup(-\infty,\sqrt4)", True),
    (r"x=\sqrt2, y=\sqrt8", r"(\sqrt2, 2\sqrt2)", True),
    (r"30^\circ", r"\frac{\pi}{6}", True),
    ("2x+1=0", "4x=-2", True),
    ("2x+1=0", "4x=2", False),
    # math-verify alone accepts these.
    ("n - \\gcd(n, k)", "n-1", False),
    ("3R^2", "3r^2", False),
    (r"\ln 2", r"2\times0.3465736", False),
    (r"\frac{1}{20^{2012}}", r"\frac{1}{20^{3012}}", False),
    ("2pq+1", "2qp+1", True),
    ("2 listen+1", "2 silent+1", False),
    ("x^2-1", "x^2+1", False),
    (r"\sqrt{2}", "1.41", False),
    ("7", r"9^{9^{9^{9}}}", False),
    ("x", "__import__('os').abort()", False),
    ("25_6", "25_7", False),
    ("25_6", "25", False),
    ("19", "19_{8}", False),
    ("5", "7=5", False),
    ("5", "x=7=5", False),
    ("5", r"3, \boxed{5}", False),
    ("(1,2)", r"\{1,2\}", False),
  ],
)
def test_algebra_decides_what_rules_cannot(
  equal, executor, reference, answer, correct
):
  assert not equal(reference, answer)
  assert bool(grader.submit(executor, reference, answer).result(60)) == correct
  assert not grader.submit(executor, reference, answer, "rules").result(60)


def test_algebra_keeps_to_a_tolerance(executor):
  reference, answer = r"\sqrt{2}", "1.41"
  near = numbers.Tolerance(absolute=0.01)
  assert grader.submit(executor, reference, answer, tolerance=near).result(60)
  tight = numbers.Tolerance(absolute=0.001)
  assert not grader.submit(executor, reference, answer, tolerance=tight).result(
    60
  )


def test_no_answer_is_wrong(executor):
  for answer in (None, "", "  "):
    assert not grader.submit(executor, "5", answer).result(60)
  with pytest.raises(ValueError, match="expected one of"):
    grader.submit(executor, "5", "5", "other")


def test_a_library_is_only_there_for_jobs_that_name_it(executor):
  code = "def f():\n  import sympy\n  return 1"
  plain = executor.submit(Job("plain", code, ("",))).result(60)
  assert (plain.status, plain.error) == ("error", "ModuleNotFoundError")
  named = executor.submit(Job("named", code, ("",), libraries=("math_verify",)))
  assert named.result(60).outputs == ("1",)
  assert executor.counters()["programs"] >= 2
  with pytest.raises(ValueError, match="expected of"):
    executor.submit(Job("other", code, ("",), libraries=("os",)))
