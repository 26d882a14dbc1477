"""Reading formulas: notation, numbers, units, words, sets."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typed import present

from azr_jax.grading.mathematics import (
  algebra,
  grader,
  intervals,
  lists,
  names,
  notation,
  numbers,
  tokens,
  units,
  words,
)

PIECES = (
  r"\frac \sqrt \text{ { } ( ) [ ] \{ \} , ; = < \le \cup \pm ^ _ 12 .5 1e9 "
  r"x ab \cosx \begin{pmatrix} \end{pmatrix} & \\ \left \right . % $ \$ cm "
  r"and or \in | : ' ! \overline{3} \infty \mathbb{R} \circ \! million"
).split(" ")


@pytest.mark.parametrize(
  "text, same",
  [
    (r"\dfrac12", r"\frac{1}{2}"),
    (r"\frac9{19}", r"\frac{9}{19}"),
    (r"-2\cosx+C", r"-2\cos x + C"),
    (r"0\leqx\leqslant1", r"0 \le x \le 1"),
    (r"4\piR^{2}", r"4 \pi R^2"),
    (r"\pii", r"\pi i"),
    (r"11,\! 111,\! 100", "11111100"),
    ("1{,}000", "1000"),
    ("1 000 000", "1000000"),
    ("2*sqrt(5)", r"2\cdot\sqrt{5}"),
    ("√3/2", r"\sqrt3/2"),
    ("2^10", "2^{10}"),
    ("x^(n+1)", "x^{n+1}"),
    ("10^-3", "10^{-3}"),
    (r"\left(1,2\right]", "(1,2]"),
    (r"{n \choose k}", r"\binom nk"),
    (r"90^{\circ}", "90°"),
    (r"\mathbf{v}", "v"),
    (r"\begin{array}{cc}1&2\end{array}", r"\begin{array}{c}1 & 2\end{array}"),
  ],
)
def test_other_notation_is_the_same(text, same):
  assert notation.read(text) == notation.read(same)


@pytest.mark.parametrize(
  "text, other",
  [("1 2", "12"), ("12 34", "1234"), ("x^2", "x_2"), (r"\cos", r"\cot")],
)
def test_what_differs_stays_different(text, other):
  assert notation.read(text) != notation.read(other)


@pytest.mark.parametrize(
  "text",
  ["{5", "5}", r"\frac{1}", "{" * 99 + "}" * 99, r"\sqrt" * 300, "x^" * 300]
  + [r"\begin{pmatrix}1", r"\sqrt[3", "2^(", r"\begin{a}1\end{b}", "^-" * 300],
)
def test_what_is_no_formula_is_unreadable(equal, text):
  with pytest.raises(tokens.UnreadableError):
    notation.read(text)
  assert not equal("5", text)


@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_any_text_gives_an_answer(equal, pieces):
  text = "".join(pieces)
  for reference in ("5", "x=1, y=2", "[0,1)", r"\{1,2\}", "(A) 3", "word"):
    assert equal(reference, text) in (True, False)
  assert equal(text, "1") in (True, False)


REPEATED = [
  *PIECES,
  *("1,", "(1,2),", "((", "x=", r"\frac{1}{2}", "a b ", "1:", "1 000 ", "{{"),
  *(r"\text{cm}^9", " squared", r"\sqrt2", r"\cup]0,1[", "x=1,", "or "),
]


@pytest.mark.slow
@pytest.mark.parametrize("piece", REPEATED)
def test_the_time_to_read_grows_no_faster_than_the_text(piece):
  """Ten times the text may take sixty times as long, to allow for noise."""

  def seconds(count):
    text = piece * (count // len(piece))
    start = time.thread_time()
    try:
      notation.read(text)
    except tokens.UnreadableError:
      pass
    return time.thread_time() - start

  limit = 60 * max(1e-3, min(seconds(2_000) for _ in range(3)))
  assert any(seconds(20_000) < limit for _ in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("piece", REPEATED)
def test_the_longest_answer_is_compared_at_once(equal, piece):
  answer = (piece * 1000)[: grader.MAX_ANSWER_CHARS]
  start = time.thread_time()
  for reference in ("5", "1,2,3", "[0,1)", "x=1", "(1,2)", answer):
    equal(reference, answer + " ")
    equal(reference, "1" + answer[1:])
  assert time.thread_time() - start < 3


@pytest.mark.parametrize(
  "text, value",
  [
    ("1,234.5", Fraction("1234.5")),
    (r"0.1\overline{6}", Fraction(1, 6)),
    (r"2.\dot{3}", Fraction(7, 3)),
    (r"-2\frac{1}{3}", Fraction(-7, 3)),
    ("3 1/2", Fraction(7, 2)),
    (r"\frac{35}{-9}", Fraction(-35, 9)),
    (r"1.5\times10^{-3}", Fraction("0.0015")),
    ("10^7", Fraction(10**7)),
    (r"\text{seven}", Fraction(7)),
    ("eleven", Fraction(11)),
    ("1, 234", None),
    ("12,34", None),
    ("31/2 1", None),
    ("1e999", None),
    (r"\frac10", None),
    ("10^{10^{10}}", None),
    ("9" * 500, None),
    ("x", None),
    (r"\overline{3}", None),
  ],
)
def test_numbers(text, value):
  assert numbers.read(notation.read(text)) == value


@pytest.mark.parametrize(
  "text, value, powers",
  [
    (r"5\text{ cm}^2", 5, (("meter", 2),)),
    ("60 miles per hour", 60, (("meter", 1), ("second", -1))),
    (r"10 \frac{\text{m}}{\text{s}^2}", 10, (("meter", 1), ("second", -2))),
    ("12 square inches", 12, (("meter", 2),)),
    ("12 green apples", 12, (("apple", 1), ("green", 1))),
    (r"3\text{ million dollars}", 3_000_000, (("dollar", 1),)),
    (r"-\$5", -5, (("dollar", 1),)),
    (r"12\text{ units}", 12, None),
  ],
)
def test_units(text, value, powers):
  quantity = units.read_quantity(notation.read(text))
  assert quantity.value() == value
  assert (quantity.unit.powers if quantity.unit else None) == powers


@pytest.mark.parametrize(
  "text",
  ["5 squared", "12 or 13", "2 n", "3x", "5 more", "6 ab", "5 dozens of"],
)
def test_what_is_no_unit(text):
  assert units.read_quantity(notation.read(text)).unit is None


def test_powers_of_units_are_bounded():
  for text in (r"5\text{ cm}" + "^9" * 300, "5 cm" + " squared" * 100):
    assert units.read_quantity(notation.read(text)).unit is None


@pytest.mark.parametrize(
  "text, letter, has_value",
  [
    ("(C)", "C", False),
    (r"\textbf{(C)}\ 12", "C", True),
    ("B.", "B", False),
    (r"\text{Option D}", "D", False),
    ("(D) -5", "D", True),
  ],
)
def test_choices(text, letter, has_value):
  choice = present(words.choice(notation.read(text)))
  assert (choice.letter, bool(choice.value)) == (letter, has_value)


@pytest.mark.parametrize(
  "text", ["(b)", "C12", "(C) or (D)", "(C) 1, (D) 2", "A B", "AB", "5", "(5)"]
)
def test_what_is_no_choice(text):
  assert words.choice(notation.read(text)) is None


@pytest.mark.parametrize(
  "text, count",
  [
    (r"x<1\text{ or }x>2", 2),
    (r"]0,1[\cup]2,3[", 2),
    (r"\mathbb{R}\setminus\{1\}", 2),
    (r"\{x\in\mathbb{R}\mid 0<x\le1\}", 1),
    (r"x>1\text{ and }x<3", 1),
    ("x<y", None),
    (r"0<x<1<y", None),
    (r"0<x>1", None),
    ("5", None),
  ],
)
def test_sets_of_real_numbers(text, count):
  region = intervals.read(notation.read(text))
  assert (region and len(region.pieces)) == count


@pytest.mark.parametrize(
  "text, is_name",
  [
    ("x", True),
    ("f(2)", True),
    (r"\angle ABC", True),
    ("m+n", True),
    (r"\frac{a}{b}", True),
    (r"\text{Area}", True),
    ("x^2", False),
    ("2x", False),
    ("-x", False),
    (r"\sqrt{x}", False),
    ("5", False),
  ],
)
def test_names(text, is_name):
  assert names.is_name(notation.read(text)) is is_name


def test_a_sign_of_plus_and_minus_is_two_parts():
  assert len(lists.read(notation.read(r"1\pm\sqrt5, -2"))) == 3
  assert len(lists.read(notation.read(r"\pm1\pm\sqrt2"))) == 1


@pytest.mark.parametrize(
  "reference, answer",
  [
    ("5", r"5\text{ or so}"),
    ("5", r"\frac{x}{x}"),
    ("2x", "x2"),
    ("12", "3 4"),
    ("5", "1,2"),
    ("silent", "listen"),
    (r"n-\gcd(n,k)", "n-1"),
    ("x", "5=5"),
  ],
)
def test_algebra_is_not_asked_what_it_would_misread(reference, answer):
  nodes = notation.read(reference), notation.read(answer)
  assert algebra.question("equal", *nodes) is None


def test_algebra_reads_exact_numbers():
  nodes = notation.read(r"0.25x-26\frac{1}{3}+0.\overline{3}")
  written = algebra.written(nodes)
  assert written == r"\frac{1}{4}x -\frac{79}{3}+\frac{1}{3}"
