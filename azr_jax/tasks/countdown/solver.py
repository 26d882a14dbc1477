"""Every way to reach a target, for many puzzles at a time, exactly.

A dynamic programme over subsets of the numbers: what a subset reaches are the
values of two disjoint parts of it, combined by + - x /, the last but one and
the last in both orders. A way to build an expression is a path; the paths of n
numbers are the same for all puzzles (6, 108, 3,240 for 2, 3, 4 numbers), so
each is a column, and only its value differs from row to row. Values are exact
rationals: int64 numerators and denominators, which are not reduced.

Paper: seed 003, section 3.1.
"""

import dataclasses
import functools
import itertools
import operator as operators
from collections.abc import Callable
from fractions import Fraction

import numpy as np

APPLY: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
  "+": operators.add,
  "-": operators.sub,
  "*": operators.mul,
  "/": operators.truediv,
}
# What an operation costs; the paper counts "complexity" and gives no weights.
COSTS = {"+": 1.0, "-": 1.2, "*": 1.6, "/": 2.2}
# A path that ends so close to the target, but not on it, is a near miss.
NEAR = 3
# Rows whose values are in memory at the same time, by count of numbers.
_ROWS = 256
# (operator, whether the second part stands first).
_COMBINATIONS = (
  ("+", False),
  ("-", False),
  ("-", True),
  ("*", False),
  ("/", False),
  ("/", True),
)


@dataclasses.dataclass(frozen=True)
class _Block:
  """Neighbouring paths of one subset: two parts and how they are combined."""

  left: int
  right: int
  operator: str
  swapped: bool
  start: int
  stop: int


@dataclasses.dataclass(frozen=True)
class _Paths:
  """The paths of one subset of the numbers, as columns.

  Attributes:
    blocks: in order; none for a single number.
    cost: float64 [paths], of all operations.
    depth: int64 [paths], operations on the longest way to a number.
    plain: bool [paths], + and - alone.
    divides: bool [paths], at least one division.
  """

  blocks: tuple[_Block, ...]
  cost: np.ndarray
  depth: np.ndarray
  plain: np.ndarray
  divides: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Values:
  """What the paths of one subset reach, [rows, paths].

  Attributes:
    numerator: int64.
    denominator: int64, above 0; 0 where something was divided by zero.
    negative: bool, a value on the way is below 0.
    fractional: bool, a value on the way is no integer.
  """

  numerator: np.ndarray
  denominator: np.ndarray
  negative: np.ndarray
  fractional: np.ndarray


@dataclasses.dataclass(frozen=True)
class Analysis:
  """What the solver finds out about puzzles, one row each.

  Attributes:
    paths: int64, paths that end on the target; 0: there is no solution.
    best: int64, the cheapest of them, for `term`; -1 without one.
    cost: float64, of the cheapest; inf without one.
    depth: int64, of the flattest; 0 without one.
    natural: bool, one needs neither negative nor fractional values.
    plus_minus: bool, one is of + and - alone.
    all_divide: bool, all of them divide (as with all that follow, there is
      one at least).
    all_fractional: bool, all have a fraction on the way.
    all_negative: bool, all have a negative value on the way.
    near: int64, near misses.
    two_suffice: bool, two of the numbers reach the target.
  """

  paths: np.ndarray
  best: np.ndarray
  cost: np.ndarray
  depth: np.ndarray
  natural: np.ndarray
  plus_minus: np.ndarray
  all_divide: np.ndarray
  all_fractional: np.ndarray
  all_negative: np.ndarray
  near: np.ndarray
  two_suffice: np.ndarray


def analyse(numbers: np.ndarray, targets: np.ndarray) -> Analysis:
  """Solves puzzles of the same count of numbers.

  Args:
    numbers: positive integers [rows, n], n of 2 to 6.
    targets: integers [rows].

  Raises:
    ValueError: n is out of range, or numbers are too large to be exact.
  """
  numbers = np.asarray(numbers, np.int64)
  targets = np.asarray(targets, np.int64)
  _check(numbers, targets)
  size = numbers.shape[1]
  rows = max(1, _ROWS * 3240 // len(_tables(size)[(1 << size) - 1].cost))
  parts = [
    _analyse(numbers[start : start + rows], targets[start : start + rows])
    for start in range(0, len(numbers), rows)
  ]
  names = [field.name for field in dataclasses.fields(Analysis)]
  return Analysis(
    **{
      name: np.concatenate([getattr(part, name) for part in parts])
      for name in names
    }
  )


def _check(numbers: np.ndarray, targets: np.ndarray) -> None:
  if numbers.ndim != 2 or not 2 <= numbers.shape[1] <= 6 or not len(numbers):
    raise ValueError(
      f"numbers of shape {numbers.shape}: expected [rows, 2 to 6]"
    )
  size, largest = numbers.shape[1], int(numbers.max())
  most = size * (size * largest) ** size
  target = int(np.abs(targets).max())
  if numbers.min() < 1 or most >= 2**62 or most * max(target, 1) >= 2**62:
    raise ValueError(
      f"numbers from {numbers.min()} to {largest}, targets up to {target}: "
      f"expected positive numbers, {size} of which and a target fit 64 bits "
      "when multiplied"
    )


@functools.cache
def _tables(size: int) -> dict[int, _Paths]:
  """The paths of every subset, as bit masks, smaller ones first."""
  tables: dict[int, _Paths] = {}
  for mask in sorted(range(1, 1 << size), key=int.bit_count):
    if mask.bit_count() == 1:
      zero, no = np.zeros(1), np.zeros(1, bool)
      tables[mask] = _Paths((), zero, zero.astype(int), ~no, no)
      continue
    blocks, columns, start = [], [], 0
    for left, (operator, swapped) in itertools.product(
      _halves(mask), _COMBINATIONS
    ):
      one, two = tables[left], tables[mask ^ left]
      count = len(one.cost) * len(two.cost)
      blocks.append(
        _Block(left, mask ^ left, operator, swapped, start, start + count)
      )
      columns.append(
        (
          np.add.outer(one.cost, two.cost).ravel() + COSTS[operator],
          np.maximum.outer(one.depth, two.depth).ravel() + 1,
          np.logical_and.outer(one.plain, two.plain).ravel()
          & (operator in "+-"),
          np.logical_or.outer(one.divides, two.divides).ravel()
          | (operator == "/"),
        )
      )
      start += count
    tables[mask] = _Paths(
      tuple(blocks), *map(np.concatenate, zip(*columns, strict=True))
    )
  return tables


def _halves(mask: int) -> list[int]:
  """Parts of a subset that hold its lowest number, without the whole."""
  rest = mask & (mask - 1)
  halves, part = [], rest
  while part:
    part = (part - 1) & rest
    halves.append(part | (mask ^ rest))
  return halves


def natural_paths(numbers: np.ndarray, targets: np.ndarray) -> list[np.ndarray]:
  """The paths that reach each target by natural numbers only, int64 arrays.

  Arguments and errors as for `analyse`; all rows are in memory together.
  """
  numbers = np.asarray(numbers, np.int64)
  targets = np.asarray(targets, np.int64)
  _check(numbers, targets)
  found = _values(numbers)[(1 << numbers.shape[1]) - 1]
  hits = _reaches(found, targets) & ~found.negative & ~found.fractional
  return [np.flatnonzero(row) for row in hits]


def _values(numbers: np.ndarray) -> dict[int, _Values]:
  """What every subset reaches, by its bit mask."""
  values: dict[int, _Values] = {}
  for mask, paths in _tables(numbers.shape[1]).items():
    if mask.bit_count() == 1:
      column = numbers[:, [mask.bit_length() - 1]]
      no = np.zeros(column.shape, bool)
      values[mask] = _Values(column, np.ones_like(column), no, no)
    else:
      values[mask] = _combine(paths, values)
  return values


def _analyse(numbers: np.ndarray, targets: np.ndarray) -> Analysis:
  size = numbers.shape[1]
  tables, values = _tables(size), _values(numbers)
  whole = (1 << size) - 1
  table, found = tables[whole], values[whole]
  hit = _reaches(found, targets)
  distance = found.numerator - targets[:, None] * found.denominator
  near = np.abs(distance) <= NEAR * found.denominator
  near &= (found.denominator > 0) & ~hit
  cost = np.where(hit, table.cost, np.inf)
  solved = hit.any(axis=1)
  pairs = [
    _reaches(values[mask], targets) for mask in tables if mask.bit_count() == 2
  ]

  def some(flags: np.ndarray) -> np.ndarray:
    return np.any(hit & flags, axis=1)

  def always(flags: np.ndarray) -> np.ndarray:
    return solved & ~some(~flags)

  return Analysis(
    paths=hit.sum(axis=1),
    best=np.where(solved, cost.argmin(axis=1), -1),
    cost=cost.min(axis=1),
    depth=np.where(solved, np.where(hit, table.depth, size).min(axis=1), 0),
    natural=some(~found.negative & ~found.fractional),
    plus_minus=some(table.plain),
    all_divide=always(table.divides),
    all_fractional=always(found.fractional),
    all_negative=always(found.negative),
    near=near.sum(axis=1),
    two_suffice=np.any(np.concatenate(pairs, axis=1), axis=1),
  )


def _reaches(values: _Values, targets: np.ndarray) -> np.ndarray:
  wanted = targets[:, None] * values.denominator
  return (values.numerator == wanted) & (values.denominator > 0)


def _combine(paths: _Paths, values: dict[int, _Values]) -> _Values:
  """The values of a subset from those of its parts."""
  rows = next(iter(values.values())).numerator.shape[0]
  shape = rows, len(paths.cost)
  numerator, denominator = np.empty(shape, np.int64), np.empty(shape, np.int64)
  negative, fractional = np.empty(shape, bool), np.empty(shape, bool)
  for block in paths.blocks:
    left, right = values[block.left], values[block.right]
    place = np.s_[:, block.start : block.stop]
    top, bottom = _operate(left, right, block.operator, block.swapped)
    numerator[place] = top.reshape(rows, -1)
    denominator[place] = bottom.reshape(rows, -1)
    for flags, name in ((negative, "negative"), (fractional, "fractional")):
      one, two = getattr(left, name), getattr(right, name)
      flags[place] = (one[:, :, None] | two[:, None, :]).reshape(rows, -1)
  negative |= numerator < 0
  fractional |= numerator % np.maximum(denominator, 1) != 0
  return _Values(numerator, denominator, negative, fractional)


def _operate(
  left: _Values, right: _Values, operator: str, swapped: bool
) -> tuple[np.ndarray, np.ndarray]:
  """Numerators and denominators [rows, left paths, right paths]."""
  a, b = left.numerator[:, :, None], left.denominator[:, :, None]
  c, d = right.numerator[:, None, :], right.denominator[:, None, :]
  if operator == "*":
    return a * c, b * d
  if operator == "/":
    if swapped:
      a, b, c, d = c, d, a, b
    sign = np.where(c < 0, -1, 1)
    # Nothing comes of what was divided by zero.
    return sign * (a * d), np.where(d == 0, 0, sign * (b * c))
  first, second = a * d, b * c
  if operator == "+":
    return first + second, b * d
  return (second - first if swapped else first - second), b * d


@dataclasses.dataclass(frozen=True)
class Term:
  """A number, or two terms combined; `text` is in brackets if combined."""

  value: Fraction
  text: str
  operator: str = ""
  left: "Term | None" = None
  right: "Term | None" = None

  @property
  def expression(self) -> str:
    """The term without brackets around it."""
    return self.text[1:-1] if self.operator else self.text


def term(numbers: tuple[int, ...], path: int) -> Term:
  """A path of these numbers as a tree.

  Raises:
    ZeroDivisionError: the path divides by zero.
  """
  tables = _tables(len(numbers))

  def build(mask: int, path: int) -> Term:
    if mask.bit_count() == 1:
      number = numbers[mask.bit_length() - 1]
      return Term(Fraction(number), str(number))
    block = next(b for b in tables[mask].blocks if path < b.stop)
    one, two = divmod(path - block.start, len(tables[block.right].cost))
    parts = [build(block.left, one), build(block.right, two)]
    if block.swapped:
      parts.reverse()
    return combine(parts[0], parts[1], block.operator)

  return build((1 << len(numbers)) - 1, path)


def combine(left: Term, right: Term, operator: str) -> Term:
  """Two terms by one of `APPLY`.

  Raises:
    ZeroDivisionError: the right one is 0 and divides.
  """
  value = APPLY[operator](left.value, right.value)
  text = f"({left.text} {operator} {right.text})"
  return Term(value, text, operator, left, right)
