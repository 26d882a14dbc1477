"""Finds all solutions of a batch of Countdown puzzles, exactly.

The solver is a dynamic program over subsets of the numbers. It splits a subset
into two disjoint parts in every way and combines their values by + - * /, with
- and / in both orders. All puzzles of n numbers have the same expressions (6,
108, 3,240 for n = 2, 3, 4). So rows of the arrays are puzzles, columns are
expressions, and the column index identifies an expression. Values are exact
rationals: int64 numerators and denominators, which are not reduced.

Paper: Countdown, section 3.1.
"""

import dataclasses
import functools
import itertools
import operator as operators
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float, Int, Int64

APPLY: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
  "+": operators.add,
  "-": operators.sub,
  "*": operators.mul,
  "/": operators.truediv,
}
# Cost of an operation. The paper does not give the weights of its "complexity".
COSTS = {"+": 1.0, "-": 1.2, "*": 1.6, "/": 2.2}
# Maximum distance of a near miss from the target.
NEAR = 3
# Maximum number of values per batch: 256 puzzles of four numbers.
_MAX_VALUES = 256 * 3240
# (operator, whether the right part is the first operand).
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
  """Adjacent expressions of a subset with the same parts and operator.

  Attributes:
    left: the bit mask of the left part.
    right: the bit mask of the right part.
    operator: one of `APPLY`.
    swapped: whether the right part is the first operand.
    start: the index of the first expression.
    stop: the index after the last expression.
  """

  left: int
  right: int
  operator: str
  swapped: bool
  start: int
  stop: int


@dataclasses.dataclass(frozen=True)
class _Expressions:
  """The expressions of one subset of the numbers, as columns.

  Attributes:
    blocks: the blocks of expressions in order; empty for a single number.
    cost: the sum over all operations.
    depth: the depth of the expression tree.
    plus_minus: whether all operations are + or -.
    divides: whether any operation is a division.
  """

  blocks: tuple[_Block, ...]
  cost: Float[np.ndarray, " expressions"]
  depth: Int[np.ndarray, " expressions"]
  plus_minus: Bool[np.ndarray, " expressions"]
  divides: Bool[np.ndarray, " expressions"]


@dataclasses.dataclass(frozen=True)
class _Values:
  """The values of the expressions of one subset.

  Attributes:
    numerator: the numerators, not reduced.
    denominator: positive; 0 if the expression divides by zero.
    negative: whether any intermediate or final value is negative.
    fractional: whether any intermediate or final value is not an integer.
  """

  numerator: Int64[np.ndarray, "rows expressions"]
  denominator: Int64[np.ndarray, "rows expressions"]
  negative: Bool[np.ndarray, "rows expressions"]
  fractional: Bool[np.ndarray, "rows expressions"]


@dataclasses.dataclass(frozen=True)
class Analysis:
  """Properties of puzzles.

  The `all_` fields are False for puzzles without a solution.

  Attributes:
    num_solutions: the number of expressions that reach the target.
    best: the index of the cheapest solution, for `term`; -1 if none.
    cost: the cost of the cheapest solution; inf if none.
    depth: the minimum depth of a solution; 0 if none.
    natural: whether some solution has no negative or fractional value.
    plus_minus: whether some solution uses only + and -.
    all_divide: whether all solutions divide.
    all_fractional: whether all solutions have a fractional value.
    all_negative: whether all solutions have a negative value.
    near: the number of near misses.
    two_suffice: whether two of the numbers reach the target.
  """

  num_solutions: Int[np.ndarray, " rows"]
  best: Int[np.ndarray, " rows"]
  cost: Float[np.ndarray, " rows"]
  depth: Int[np.ndarray, " rows"]
  natural: Bool[np.ndarray, " rows"]
  plus_minus: Bool[np.ndarray, " rows"]
  all_divide: Bool[np.ndarray, " rows"]
  all_fractional: Bool[np.ndarray, " rows"]
  all_negative: Bool[np.ndarray, " rows"]
  near: Int[np.ndarray, " rows"]
  two_suffice: Bool[np.ndarray, " rows"]


def analyse(
  numbers: Int[np.ndarray, "rows numbers"], targets: Int[np.ndarray, " rows"]
) -> Analysis:
  """Solves a batch of puzzles with n numbers each.

  Args:
    numbers: positive numbers, n from 2 to 6 per puzzle.
    targets: the target of each puzzle.

  Raises:
    ValueError: n is out of range, or exact values might not fit 64 bits.
  """
  numbers = np.asarray(numbers, np.int64)
  targets = np.asarray(targets, np.int64)
  _check(numbers, targets)
  size = numbers.shape[1]
  rows = max(1, _MAX_VALUES // len(_tables(size)[(1 << size) - 1].cost))
  batches = [
    _analyse(numbers[start : start + rows], targets[start : start + rows])
    for start in range(0, len(numbers), rows)
  ]
  names = [field.name for field in dataclasses.fields(Analysis)]
  return Analysis(
    **{
      name: np.concatenate([getattr(batch, name) for batch in batches])
      for name in names
    }
  )


def _check(
  numbers: Int[np.ndarray, "rows numbers"], targets: Int[np.ndarray, " rows"]
) -> None:
  if numbers.ndim != 2 or not 2 <= numbers.shape[1] <= 6 or not len(numbers):
    raise ValueError(
      f"numbers of shape {numbers.shape}: expected [rows, 2 to 6]"
    )
  size, max_number = numbers.shape[1], int(numbers.max())
  max_value = size * (size * max_number) ** size
  max_target = int(np.abs(targets).max())
  max_product = max_value * max(max_target, 1)
  if numbers.min() < 1 or max_product >= 2**62:
    raise ValueError(
      f"numbers from {numbers.min()} to {max_number}, targets up to "
      f"{max_target}: expected positive numbers, small enough that {size} "
      "numbers times a target fit 64 bits"
    )


@functools.cache
def _tables(size: int) -> dict[int, _Expressions]:
  """Returns the expressions of each subset by bit mask, smallest first."""
  tables: dict[int, _Expressions] = {}
  for mask in sorted(range(1, 1 << size), key=int.bit_count):
    if mask.bit_count() == 1:
      zero, false = np.zeros(1), np.zeros(1, bool)
      tables[mask] = _Expressions((), zero, zero.astype(int), ~false, false)
      continue
    blocks, columns, start = [], [], 0
    for left_mask, (operator, swapped) in itertools.product(
      _left_parts(mask), _COMBINATIONS
    ):
      right_mask = mask ^ left_mask
      left, right = tables[left_mask], tables[right_mask]
      stop = start + len(left.cost) * len(right.cost)
      blocks.append(
        _Block(left_mask, right_mask, operator, swapped, start, stop)
      )
      columns.append(
        (
          np.add.outer(left.cost, right.cost).ravel() + COSTS[operator],
          np.maximum.outer(left.depth, right.depth).ravel() + 1,
          np.logical_and.outer(left.plus_minus, right.plus_minus).ravel()
          & (operator in "+-"),
          np.logical_or.outer(left.divides, right.divides).ravel()
          | (operator == "/"),
        )
      )
      start = stop
    tables[mask] = _Expressions(
      tuple(blocks), *map(np.concatenate, zip(*columns, strict=True))
    )
  return tables


def _left_parts(mask: int) -> list[int]:
  """Returns the proper subsets of `mask` that contain its lowest number."""
  rest = mask & (mask - 1)
  parts, part = [], rest
  while part:
    part = (part - 1) & rest
    parts.append(part | (mask ^ rest))
  return parts


def natural_solutions(
  numbers: Int[np.ndarray, "rows numbers"], targets: Int[np.ndarray, " rows"]
) -> list[Int[np.ndarray, " _solutions"]]:
  """Returns each puzzle's solutions without negative or fractional values.

  The arguments and errors are the same as for `analyse`. Rows are not batched,
  so memory grows with their number.

  Returns:
    For each row, the indices of expressions.
  """
  numbers = np.asarray(numbers, np.int64)
  targets = np.asarray(targets, np.int64)
  _check(numbers, targets)
  values = _values(numbers)[(1 << numbers.shape[1]) - 1]
  hits = _reaches(values, targets) & ~values.negative & ~values.fractional
  return [np.flatnonzero(row) for row in hits]


def _values(numbers: Int[np.ndarray, "rows numbers"]) -> dict[int, _Values]:
  """Returns the values of every subset, by bit mask."""
  values: dict[int, _Values] = {}
  for mask, expressions in _tables(numbers.shape[1]).items():
    if mask.bit_count() == 1:
      column = numbers[:, [mask.bit_length() - 1]]
      false = np.zeros(column.shape, bool)
      values[mask] = _Values(column, np.ones_like(column), false, false)
    else:
      values[mask] = _combine(expressions, values)
  return values


def _analyse(
  numbers: Int[np.ndarray, "rows numbers"], targets: Int[np.ndarray, " rows"]
) -> Analysis:
  size = numbers.shape[1]
  tables, values = _tables(size), _values(numbers)
  all_numbers = (1 << size) - 1
  table, reached = tables[all_numbers], values[all_numbers]
  hit = _reaches(reached, targets)
  distance = reached.numerator - targets[:, None] * reached.denominator
  near = np.abs(distance) <= NEAR * reached.denominator
  near &= (reached.denominator > 0) & ~hit
  cost = np.where(hit, table.cost, np.inf)
  solved = hit.any(axis=1)
  pairs = [
    _reaches(values[mask], targets) for mask in tables if mask.bit_count() == 2
  ]

  def any_solution(flags: np.ndarray) -> np.ndarray:
    return np.any(hit & flags, axis=1)

  def all_solutions(flags: np.ndarray) -> np.ndarray:
    return solved & ~any_solution(~flags)

  return Analysis(
    num_solutions=hit.sum(axis=1),
    best=np.where(solved, cost.argmin(axis=1), -1),
    cost=cost.min(axis=1),
    depth=np.where(solved, np.where(hit, table.depth, size).min(axis=1), 0),
    natural=any_solution(~reached.negative & ~reached.fractional),
    plus_minus=any_solution(table.plus_minus),
    all_divide=all_solutions(table.divides),
    all_fractional=all_solutions(reached.fractional),
    all_negative=all_solutions(reached.negative),
    near=near.sum(axis=1),
    two_suffice=np.any(np.concatenate(pairs, axis=1), axis=1),
  )


def _reaches(
  values: _Values, targets: Int[np.ndarray, " rows"]
) -> Bool[np.ndarray, "rows expressions"]:
  """Returns which expressions reach the target."""
  expected = targets[:, None] * values.denominator
  return (values.numerator == expected) & (values.denominator > 0)


def _combine(expressions: _Expressions, values: dict[int, _Values]) -> _Values:
  """Returns the values of a subset, given the values of smaller subsets."""
  rows = next(iter(values.values())).numerator.shape[0]
  shape = rows, len(expressions.cost)
  numerator, denominator = np.empty(shape, np.int64), np.empty(shape, np.int64)
  negative, fractional = np.empty(shape, bool), np.empty(shape, bool)
  for block in expressions.blocks:
    left, right = values[block.left], values[block.right]
    columns = np.s_[:, block.start : block.stop]
    top, bottom = _operate(left, right, block.operator, block.swapped)
    numerator[columns] = top.reshape(rows, -1)
    denominator[columns] = bottom.reshape(rows, -1)
    for flags, name in ((negative, "negative"), (fractional, "fractional")):
      in_left, in_right = getattr(left, name), getattr(right, name)
      in_either = in_left[:, :, None] | in_right[:, None, :]
      flags[columns] = in_either.reshape(rows, -1)
  negative |= numerator < 0
  fractional |= numerator % np.maximum(denominator, 1) != 0
  return _Values(numerator, denominator, negative, fractional)


def _operate(
  left: _Values, right: _Values, operator: str, swapped: bool
) -> tuple[
  Int64[np.ndarray, "rows left right"], Int64[np.ndarray, "rows left right"]
]:
  """Applies the operator to every pair; returns numerators, denominators."""
  a, b = left.numerator[:, :, None], left.denominator[:, :, None]
  c, d = right.numerator[:, None, :], right.denominator[:, None, :]
  if operator == "*":
    return a * c, b * d
  if operator == "/":
    if swapped:
      a, b, c, d = c, d, a, b
    sign = np.where(c < 0, -1, 1)
    # A denominator of 0 marks division by zero, here or in an operand.
    return sign * (a * d), np.where(d == 0, 0, sign * (b * c))
  first, second = a * d, b * c
  if operator == "+":
    return first + second, b * d
  return (second - first if swapped else first - second), b * d


@dataclasses.dataclass(frozen=True)
class Term:
  """An expression tree: a number, or two combined terms.

  Attributes:
    value: the exact value.
    text: the expression, in brackets if it has an operator.
    operator: one of `APPLY`, or "" for a number.
    left: the first operand, or None for a number.
    right: the second operand, or None for a number.
  """

  value: Fraction
  text: str
  operator: str = ""
  left: "Term | None" = None
  right: "Term | None" = None

  @property
  def expression(self) -> str:
    """Returns the text without the outer brackets."""
    return self.text[1:-1] if self.operator else self.text


def term(numbers: tuple[int, ...], index: int) -> Term:
  """Returns the tree of an expression, given its index.

  Raises:
    ZeroDivisionError: the expression divides by zero.
  """
  tables = _tables(len(numbers))

  def build(mask: int, index: int) -> Term:
    if mask.bit_count() == 1:
      number = numbers[mask.bit_length() - 1]
      return Term(Fraction(number), str(number))
    block = next(b for b in tables[mask].blocks if index < b.stop)
    left, right = divmod(index - block.start, len(tables[block.right].cost))
    operands = [build(block.left, left), build(block.right, right)]
    if block.swapped:
      operands.reverse()
    return combine(operands[0], operands[1], block.operator)

  return build((1 << len(numbers)) - 1, index)


def combine(left: Term, right: Term, operator: str) -> Term:
  """Combines two terms by an operator of `APPLY`.

  Raises:
    ZeroDivisionError: the right term is 0 and the operator is `/`.
  """
  value = APPLY[operator](left.value, right.value)
  text = f"({left.text} {operator} {right.text})"
  return Term(value, text, operator, left, right)
