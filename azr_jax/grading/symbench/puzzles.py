"""Grades SymBench puzzles: any answer that follows the rules is correct.

Each grader takes a question's reference and an answer, and returns whether the
answer is correct.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from azr_jax.grading import countdown as verifier
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.grading.symbench import answer_parsing

Reference = Mapping[str, Any]

_TERM = re.compile(r"\[?[\d\s,+\-*/()'\"]*\]?", re.ASCII)
_TERM_TOKEN = re.compile(r"\d{1,12}|[-+*/()]", re.ASCII)
_ORDER = {
  "left": lambda a, b: a < b,
  "right": lambda a, b: a > b,
  "adjacent": lambda a, b: abs(a - b) == 1,
}
# The card that each card beats. Other pairs are draws.
_BEATS = {
  "elements": {"A": "C", "C": "E", "E": "B", "B": "D", "D": "A"},
  "stick_game": {"A": "B", "B": "C", "C": "D", "D": "A"},
}
_GENERATES = {"A": "B", "B": "C", "C": "D", "D": "E", "E": "A"}


def _reaches(numbers: Sequence[int], target: int, term: str) -> bool:
  if "<" in term:  # The term must not contain a tag.
    return False
  puzzle = Puzzle(tuple(numbers), target)
  return verifier.verify(puzzle, f"<answer>{term}</answer>").correct


def game24(reference: Reference, answer: str) -> bool:
  """Accepts a term that uses all four numbers, with or without `= 24`."""
  target = reference["target"]
  term = re.sub(rf"=\s*{target}\s*\Z", "", answer.strip())
  return _reaches(reference["numbers"], target, term)


def combinatorial_calculation(reference: Reference, answer: str) -> bool:
  """Accepts a term, or its tokens, with the numbers in the given order."""
  # Square brackets may enclose a list of tokens. The term itself uses round
  # ones.
  if not _TERM.fullmatch(answer.strip()):
    return False
  parts = _TERM_TOKEN.findall(answer)
  numbers = [int(part) for part in parts if part.isdigit()]
  return numbers == reference["numbers"] and _reaches(
    numbers, reference["target"], " ".join(parts)
  )


def linear_arrangement(reference: Reference, answer: str) -> bool:
  """Accepts distinct cards that explain the result of every round."""
  cards, moves = answer_parsing.tokens(answer), reference["moves"]
  game = reference["game"]
  return (
    len(cards) == len(moves) == len(set(cards))
    and all(re.fullmatch("[A-H]", card) for card in cards)
    and reference["results"]
    == [
      _result(game, move, card) for move, card in zip(moves, cards, strict=True)
    ]
  )


def _result(game: str, card: str, other: str) -> str | None:
  """Returns the result of a round for `card`, None if `other` is not a card."""
  if game == "animal":
    if card == other:
      return "draw"
    if {card, other} == {"A", "H"}:
      return "win" if card == "H" else "loss"
    return "win" if card < other else "loss"
  beats = _BEATS[game]
  if other not in beats:
    return None
  if beats[card] == other:
    return "win"
  # In the data of `elements`, a round is a draw if the other card overcomes or
  # generates `card`, so `card` loses only by generating the other one.
  loses = (
    _GENERATES[card] == other if game == "elements" else beats[other] == card
  )
  return "loss" if loses else "draw"


def eight_queens(reference: Reference, answer: str) -> bool:
  """Accepts non-attacking queens on free cells that include the given ones."""
  board = reference["board"]
  queens = answer_parsing.pairs(answer)
  size = len(board)
  if queens is None or len(queens) != size:
    return False
  if not all(0 <= r < size and 0 <= c < size for r, c in queens):
    return False
  given = {
    (r, c) for r in range(size) for c in range(size) if board[r][c] == "1"
  }
  return (
    given <= set(queens)
    and all(board[r][c] != "X" for r, c in queens)
    and all(
      len(set(lines)) == size
      for lines in (
        [r for r, _ in queens],
        [c for _, c in queens],
        [r + c for r, c in queens],
        [r - c for r, c in queens],
      )
    )
  )


def latin_square(reference: Reference, answer: str) -> bool:
  """Accepts a grid with each of a to g once in every row and column.

  All cells of the minor diagonal have the same letter, and given letters stay.
  """
  grid = reference["grid"]
  size = len(grid)
  letters = answer_parsing.tokens(answer)
  if len(letters) != size * size:
    return False
  rows = [letters[at : at + size] for at in range(0, size * size, size)]
  return (
    _lines_hold(rows, [*"abcdefg"])
    and len({rows[at][size - 1 - at] for at in range(size)}) == 1
    and _keeps(grid, rows)
  )


def sudoku(reference: Reference, answer: str) -> bool:
  """Accepts 1 to 9 once in every row, column and box; given digits stay."""
  digits = answer_parsing.integers(answer)
  if digits is None or len(digits) != 81:
    return False
  rows = [digits[at : at + 9] for at in range(0, 81, 9)]
  boxes = [
    [rows[r + i][c + j] for i in range(3) for j in range(3)]
    for r in range(0, 9, 3)
    for c in range(0, 9, 3)
  ]
  wanted = list(range(1, 10))
  return (
    _lines_hold(rows, wanted)
    and all(sorted(box) == wanted for box in boxes)
    and _keeps(reference["grid"], rows)
  )


def _lines_hold(rows: Sequence[Sequence[Any]], wanted: list[Any]) -> bool:
  """Returns whether each row and column holds each of `wanted` once."""
  lines = [*rows, *zip(*rows, strict=True)]
  return all(sorted(line) == wanted for line in lines)


def _keeps(
  given: Sequence[Sequence[Any]], rows: Sequence[Sequence[Any]]
) -> bool:
  """Returns whether rows keep all given values. 0 and None mark free cells."""
  return all(
    not wanted or wanted == value
    for line, row in zip(given, rows, strict=True)
    for wanted, value in zip(line, row, strict=True)
  )


def logic_puzzle(reference: Reference, answer: str) -> bool:
  """Accepts `count` cells with distinct numbers, including the given cell.

  Depending on the question's rule, the chosen numbers of each row and column
  must have a sum of at most `most`, or a product above 0.
  """
  grid, first = reference["grid"], reference["first"]
  cells = answer_parsing.pairs(answer)
  size = len(grid)
  if cells is None or not all(
    0 <= r < size and 0 <= c < size for r, c in cells
  ):
    return False
  numbers = {grid[r][c] for r, c in cells}
  if not len(cells) == len(numbers) == reference["count"]:
    return False
  if tuple(first) not in cells:
    return False
  lines: dict[tuple[str, int], list[int]] = {}
  for r, c in cells:
    lines.setdefault(("row", r), []).append(grid[r][c])
    lines.setdefault(("column", c), []).append(grid[r][c])
  if reference["rule"] == "sum":
    return all(sum(line) <= reference["most"] for line in lines.values())
  negative = [sum(value < 0 for value in line) for line in lines.values()]
  return not any(0 in line for line in lines.values()) and not any(
    count % 2 for count in negative
  )


def logical_equation(reference: Reference, answer: str) -> bool:
  """Accepts the given numbers, one per letter, if they solve all equations.

  An equation is (factor, letter, factor, letter, relation, number), such as
  (1, I, -3, D, =, 0) for `I = 3D`.
  """
  values = answer_parsing.integers(answer)
  if values is None or sorted(values) != sorted(reference["numbers"]):
    return False
  letters = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", values, strict=False))
  for factor, letter, other_factor, other, relation, number in reference[
    "equations"
  ]:
    left = Fraction(factor) * letters[letter]
    left += Fraction(other_factor) * letters[other]
    right = Fraction(number)
    if not (left > right if relation == ">" else left == right):
      return False
  return True


def permutation(reference: Reference, answer: str) -> bool:
  """Accepts every item once, in an order that meets all constraints."""
  items = answer_parsing.tokens(answer)
  if sorted(items) != sorted(reference["items"]):
    return False
  position = {item: index for index, item in enumerate(items, 1)}
  for item, relation, other in reference["constraints"]:
    if relation in _ORDER:
      held = _ORDER[relation](position[item], position[other])
    else:
      held = (position[item] == other) == (relation == "at")
    if not held:
      return False
  return True
