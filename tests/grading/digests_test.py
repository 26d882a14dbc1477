"""Digests are equal if and only if values or printed texts are equal."""

import itertools
import math

import pytest

from azr_jax.grading import digests

VALUES = [
  *(None, 0, False, -0.0, 1, True, 1.0, 1.5, 2**70, 2.0**70, -7, "", "1"),
  *(
    math.inf,
    -math.inf,
    1e300,
    5e-324,
    b"1",
    "\u00e9",
    "\\xe9",
    "\ud800",
    "[]",
  ),
  *([], (), set(), frozenset(), {}, [[]], [()], ["a,b"], ["a", "b"], [1, 2]),
  *((1, 2), [1.0, 2], {1, 2}, {2.0, 1}, {1: 2}, {1.0: 2.0}, {2: 1}, [12]),
  *({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": [1]}, {"a": (1,)}, [{1}, 2]),
]


def test_values_have_one_digest_exactly_if_they_are_equal():
  for a, b in itertools.product(VALUES, VALUES):
    same = digests.of_value(a) == digests.of_value(b)
    assert same == (a == b), (a, b)
  assert digests.of_json(((1,), {"a": ()})) == digests.of_json([[1], {"a": []}])


@pytest.mark.parametrize("value", [math.nan, [math.nan], object(), [1j], 1j])
def test_other_values_have_no_digest(value):
  with pytest.raises((TypeError, ValueError)):
    digests.of_value(value)


def test_printed_texts_have_one_digest_if_livecodebench_finds_them_equal():
  groups = [
    ["1 2", "1 2\n", " 1  2 ", "1.0 2", "+1 2e0", "01 20e-1", "\n1 2\r\n\n"],
    ["0.5", ".5", "0.50", "5E-1", "50e-2", "0000.5"],
    ["0", "-0", "0.0", "0e5", "-.0"],
    ["1200", "1.2e3", "1200.", "12e2"],
    ["1" + "0" * 9000, "1" + "0" * 9000 + ".0", "001" + "0" * 9000],
    ["1" * 200_000 + "x"],  # Backtracking would take hours here.
    ["a\nb", "a \n  b", "\ta\nb\n"],
    *(
      [t] for t in ("1\n2", "1\n\n2", "12", "a b", "a  b", "a 1", "a 1.0", "-5")
    ),
    *(
      [t] for t in ("", "1 2 3", "1,2", "nan", "1e1000", "0x10", ".", "-", "e5")
    ),
    *([t] for t in ("0.05", "-0.5", "5e0", "1.5000000000000001", "1.5")),
  ]
  found = [{digests.of_printed(text) for text in group} for group in groups]
  assert [len(group) for group in found] == [1] * len(groups)
  assert len(set().union(*found)) == len(groups)
