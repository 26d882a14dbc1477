"""`typed_key` agrees with Python's values and refuses other texts."""

import ast
import collections
import concurrent.futures
import gc
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azr_jax.executor.child import canonical as executor_canonical
from azr_jax.executor.child.canonical import canonical
from azr_jax.grading import literals
from azr_jax.grading.values import values_equal

SCALARS = (
  st.none()
  | st.booleans()
  | st.integers()
  | st.floats()
  | st.complex_numbers()
  | st.text()
  | st.binary()
)
HASHABLE = st.recursive(
  SCALARS,
  lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
  max_leaves=6,
)
VALUES = st.recursive(
  HASHABLE | st.sets(HASHABLE, max_size=4),
  lambda inner: (
    st.lists(inner, max_size=4)
    | st.tuples(inner)
    | st.dictionaries(HASHABLE, inner, max_size=4)
  ),
  max_leaves=12,
)
quick = settings(max_examples=150)


def same(one, other):
  """Compares values by exact type and value; NaN equals NaN."""
  if type(one) is not type(other):
    return False
  if isinstance(one, list | tuple):
    return len(one) == len(other) and all(map(same, one, other))
  if isinstance(one, set | frozenset):
    return len(one) == len(other) and all(
      any(same(a, b) for b in other) for a in one
    )
  if isinstance(one, dict):
    return len(one) == len(other) and all(
      any(same(k, q) and same(v, w) for q, w in other.items())
      for k, v in one.items()
    )
  if isinstance(one, complex):
    return same(one.real, other.real) and same(one.imag, other.imag)
  return one == other or (one != one and other != other)


@quick
@given(VALUES)
def test_a_value_equals_its_own_text(value):
  text = canonical(value)
  assert values_equal(text, text)
  assert hash(literals.typed_key(text)) == hash(literals.typed_key(text))


@quick
@given(VALUES, VALUES)
def test_keys_are_equal_when_the_values_are_the_same(one, other):
  keys = [literals.typed_key(canonical(value)) for value in (one, other)]
  assert (keys[0] == keys[1]) == same(one, other)


@quick
@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.tuples(inner)))
def test_repr_reads_as_the_canonical_text(value):
  text = repr(value)
  if "nan" not in text and "inf" not in text:
    assert values_equal(canonical(value), text)


@quick
@given(st.sets(st.integers() | st.text(), min_size=2), st.randoms())
def test_order_of_a_set_does_not_matter(value, random):
  items = [canonical(item) for item in value]
  random.shuffle(items)
  assert values_equal(canonical(value), "{" + ", ".join(items) + "}")
  items = [f"{item}: 0" for item in items]
  text = canonical(dict.fromkeys(value, 0))
  assert values_equal(text, "{" + ", ".join(items) + "}")


@quick
@given(st.text(alphabet="([{}])'\"\\+-~ \n#,:1ajfr"))
def test_any_text_is_a_key_or_a_parse_error(text):
  try:
    literals.typed_key(text)
  except literals.ParseError:
    pass


@pytest.mark.parametrize(
  "wrap",
  [
    lambda v: [v],
    lambda v: (v,),
    lambda v: {v},
    lambda v: {1: v},
    lambda v: frozenset([v]),
    lambda v: collections.deque([v]),
    lambda v: collections.Counter({1: v}),
    lambda v: collections.OrderedDict([(1, v)]),
  ],
)
def test_the_deepest_canonical_text_can_be_read(wrap):
  text, value = "", float("nan")
  for _ in range(executor_canonical.MAX_DEPTH):
    try:
      value = wrap(value)
      text = canonical(value)
    except (executor_canonical.Unserializable, TypeError):
      break
  assert text and values_equal(text, text)
  assert literals.are_literal_arguments(text)


@pytest.mark.parametrize(
  "one, other",
  [
    ("1", "1.0"),
    ("1", "True"),
    ("0", "False"),
    ("1.0", "(1+0j)"),
    ("[1]", "(1,)"),
    ("{1}", "frozenset({1})"),
    ("{1}", "[1]"),
    ("'1'", "1"),
    ("'a'", "b'a'"),
    ("None", "''"),
    ("{}", "set()"),
    ("{'a': 1}", "Counter({'a': 1})"),
    ("[1, 2]", "[2, 1]"),
    ("{1: 2}", "{1: 2.0}"),
    ("Fraction(1, 2)", "0.5"),
    ("Decimal('1')", "1"),
    ("deque([1])", "[1]"),
    ("0.1", "0.10000000000000002"),
  ],
)
def test_different(one, other):
  assert not values_equal(one, other)
  assert not values_equal(other, one)


@pytest.mark.parametrize(
  "one, other",
  [
    ("[1,2]", " [ 1, 2, ]\n"),
    ("'a'", '"a"'),
    ("'ab'", "'a' 'b'"),
    ("255", "0xff"),
    ("0.0", "-0.0"),
    ("float('nan')", "float('nan')"),
    ("1e999", "float('inf')"),
    ("{1, 2}", "set([2, 1])"),
    ("frozenset({1})", "frozenset([1])"),
    ("(1-2j)", "complex(1.0, -2.0)"),
    ("Fraction(1, 2)", "Fraction(2, 4)"),
    ("Decimal('1.50')", "Decimal('1.5')"),
    ("Decimal('1E+2')", "Decimal(100)"),
    ("Decimal('-0.00')", "Decimal('0E+9')"),
    ("Decimal('-Infinity')", "Decimal('-inf')"),
    ("Decimal('0.000120')", "Decimal('12E-5')"),
    ("Fraction(4)", "Fraction(8, 2)"),
    ("-float('inf')", "float('-inf')"),
    ("--5", "5"),
    ("Counter({'a': 1, 'b': 2})", "Counter({'b': 2, 'a': 1})"),
    ("'" + "(" * 500 + "'", '"' + "(" * 500 + '"'),
  ],
)
def test_equal(one, other):
  assert values_equal(one, other)


@pytest.mark.parametrize(
  "text",
  [
    "",
    "x",
    "1 + 1",
    "[0] * 3",
    "not 1",
    "~1",
    "-True",
    "-'a'",
    "f(1)",
    "eval('1')",
    "list((1,))",
    "set(1)",
    "float('1')",
    "float('+-inf')",
    "Fraction(1, 0)",
    "Decimal('x')",
    "[*'ab']",
    "{**{}}",
    "[x for x in ()]",
    "(lambda: 1)",
    "f'{1}'",
    "1; 2",
    "...",
    "(x := 1)",
    "1 if 1 else 1",
    "a.b",
    "[1][0]",
    "(" * 5000,
    "[" * 300 + "]" * 300,
    "-" * 100_000 + "1",
    "- " * 5000 + "1",
    "not " * 50_000 + "1",
    "1" * 5000,
    "'" + "a" * 300_000 + "'",
    "Decimal(0x" + "f" * 5000 + ")",
    "Fraction(1, 0x" + "f" * 5000 + ")",
    "-(1+float('nan'))",
    "-complex(float('nan'), 1.0)",
    "'\0'\0",
    "'\ud800",
    "\ufeff\x00",
  ],
)
def test_no_value_equals_nothing(text):
  assert not values_equal(text, text)
  with pytest.raises(literals.ParseError):
    literals.typed_key(text)


@pytest.mark.parametrize("quote", ["'", '"', "'''", '"""'])
@pytest.mark.parametrize("body", ["\\", "\\'", "'", '"', "'\n", "\\\n"])
def test_scanning_is_linear(quote, body):
  text = "(" * 200 + (quote + body * 200_000)[:200_000]
  with pytest.raises(literals.ParseError):
    literals.guarded_parse(text, "exec")


def test_guarded_parse_takes_programs():
  tree = literals.guarded_parse("def f(x):\n  return '\\d'", "exec")
  assert isinstance(tree, ast.Module)


@pytest.mark.parametrize("text", ["1", "1, [2]", "x=1", "", "1 # one", "(1)"])
def test_literal_arguments(text):
  assert literals.are_literal_arguments(text)


@pytest.mark.parametrize(
  "text",
  ["0) or f(1", "1)\n(2", "*[1]", "**{}", "x", "f(1)", "1).real(", "y:=1", ")"],
)
def test_not_literal_arguments(text):
  assert not literals.are_literal_arguments(text)


@quick
@given(st.lists(st.decimals(allow_nan=False) | st.fractions(), max_size=9))
def test_equal_numbers_have_equal_keys(numbers):
  texts = [canonical(number) for number in numbers]
  for one, text in zip(numbers, texts, strict=True):
    for other, other_text in zip(numbers, texts, strict=True):
      is_same = type(one) is type(other) and one == other
      assert values_equal(text, other_text) == is_same


@pytest.mark.parametrize(
  "write",
  [str, "Decimal('{}')".format, "Fraction({}, 3)".format, "({}, 1)".format],
)
def test_numbers_of_one_hash_have_keys_of_many(write):
  numbers = [write(i * (2**61 - 1)) for i in range(1, 99)]
  keys = [literals.typed_key(number) for number in numbers]
  assert len(set(map(hash, keys))) == len(keys)


def test_a_number_beyond_all_floats_is_no_value_and_no_crash():
  text = "1" * 400 + "+1j"
  with pytest.raises(literals.ParseError):
    literals.typed_key(text)
  assert not literals.are_literal_arguments(text)


def test_threads_that_parse_do_not_disturb_each_other():
  """Before Python 3.13, threads that share the parse depth get SystemError."""
  text = "[" + ", ".join(f"{{{i}: [{i}, ({i},)]}}" for i in range(300)) + "]"

  def let_others_run(phase, info):
    del phase, info
    time.sleep(0)

  def read(depth):
    if depth:
      return read(depth - 1)
    return [len(literals.literal_value(text)) for _ in range(30)]

  thresholds = gc.get_threshold()
  # JAX registers a callback that also lets other threads run.
  gc.callbacks.append(let_others_run)
  gc.set_threshold(50)
  try:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
      assert [*pool.map(read, (5, 60))] == [[300] * 30] * 2
  finally:
    gc.callbacks.remove(let_others_run)
    gc.set_threshold(*thresholds)
