"""`plain_value` agrees with Python's `==`, `bool` and `is`."""

import collections
import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azr_jax.executor.child.canonical import canonical
from azr_jax.grading import literals, values

# All of these hash to 0.
SAME_HASH = ", ".join(str(i * (2**61 - 1)) for i in range(1, 99))
# Few scalars per type, so that equal ones of different types are common.
SCALARS = (
  st.none()
  | st.booleans()
  | st.integers(-2, 2)
  | st.integers()
  | st.sampled_from([0.0, -0.0, 1.0, 2.0, 0.5, 0.1, math.inf])
  | st.sampled_from([1 + 0j, 1j])
  | st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(1, 3)])
  | st.sampled_from([Decimal("0.5"), Decimal(1)])
  | st.sampled_from(["", "1", "a", b"", b"1"])
  # Containers treat one NaN object as equal to itself, so make a new one.
  | st.sampled_from([float, complex, Decimal]).map(lambda make: make("nan"))
)
HASHABLE = st.recursive(
  SCALARS,
  lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
  max_leaves=5,
)
VALUES = st.recursive(
  HASHABLE | st.sets(HASHABLE, max_size=3),
  lambda inner: (
    st.lists(inner, max_size=3)
    | st.tuples(inner)
    | st.dictionaries(HASHABLE, inner, max_size=3)
    | st.lists(inner, max_size=3).map(collections.deque)
    | st.lists(HASHABLE, max_size=3).map(collections.Counter)
    | st.dictionaries(HASHABLE, inner, max_size=3).map(collections.OrderedDict)
  ),
  max_leaves=8,
)
quick = settings(max_examples=150)


def remade(value):
  return values.plain_value(literals.typed_key(canonical(value)))


@quick
@given(VALUES, VALUES)
def test_equality_is_pythons(one, other):
  assert (remade(one) == remade(other)) == (one == other)


@quick
@given(VALUES)
def test_a_value_comes_back(value):
  assert type(remade(value)) is type(value)
  assert bool(remade(value)) == bool(value)
  if "nan" not in repr(value).lower():
    assert remade(value) == value == remade(value)


@pytest.mark.parametrize(
  "one, other",
  [
    ("1", "1.0"),
    ("1", "True"),
    ("0", "False"),
    ("[1, {2.0}]", "[True, {2}]"),
    ("{1: 'a'}", "{1.0: 'a'}"),
    ("{1}", "frozenset({1})"),
    ("{'a': 1}", "Counter({'a': 1})"),
    ("{'a': 1}", "OrderedDict([('a', 1)])"),
    ("0.5", "Fraction(1, 2)"),
    ("{1, 2}", "{2, 1, True}"),
    ("(1+0j)", "1"),
  ],
)
def test_equal(one, other):
  keys = literals.typed_key(one), literals.typed_key(other)
  assert keys[0] != keys[1]
  assert values.plain_value(keys[0]) == values.plain_value(keys[1])


@pytest.mark.parametrize(
  "one, other",
  [
    ("[1]", "(1,)"),
    ("'1'", "1"),
    ("'a'", "b'a'"),
    ("None", "False"),
    ("float('nan')", "float('nan')"),
    ("[float('nan')]", "[float('nan')]"),
    ("0.1", "0.10000000000000002"),
    ("deque([1])", "[1]"),
    ("[1, 2]", "[2, 1]"),
  ],
)
def test_different(one, other):
  made = [values.plain_value(literals.typed_key(text)) for text in (one, other)]
  assert made[0] != made[1]


@pytest.mark.parametrize(
  "text",
  [
    "{[1]}",
    "{[1]: 2}",
    "{1: 2, True: 3}",
    "OrderedDict([1])",
    "OrderedDict(['abc'])",
    "Counter({1: 2, 1.0: 2})",
    f"{{{SAME_HASH}}}",
    f"[frozenset({{{SAME_HASH}}})]",
    f"{{{SAME_HASH.replace(',', ': 1,')}}}",
    f"OrderedDict([({SAME_HASH.replace(', ', ', 1), (')}, 1)])",
  ],
)
def test_no_value_of_python(text):
  with pytest.raises(literals.ParseError):
    values.plain_value(literals.typed_key(text))


def test_deep_values():
  for text in ("[" * 120 + "]" * 120, "(" * 60 + "1" + ",)" * 60):
    key = literals.typed_key(text)
    assert values.plain_value(key) == eval(text)
