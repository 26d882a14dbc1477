"""Parses tokens, integers, points and numbers from an answer."""

import re
from collections.abc import Sequence
from fractions import Fraction

_SEPARATORS = re.compile(r"[\s,;\[\](){}\"'`]+")
_INTEGER = re.compile(r"[-+]?\d{1,12}", re.ASCII)
_NUMBER = re.compile(
  r"[-+]?(?:\d{1,300}(?:\.\d{0,300})?|\.\d{1,300})(?:[eE][-+]?\d{1,3})?",
  re.ASCII,
)
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", re.ASCII)
_POINTS = re.compile(r"[\s\d,.;\[\]()+-]*", re.ASCII)
# The tolerance for references that are not whole numbers: the smaller of a
# fraction of the reference and half a unit in the second decimal place.
_RELATIVE, _ABSOLUTE = Fraction(1, 1000), Fraction(5, 1000)


def tokens(text: str) -> list[str]:
  """Splits a text at commas, spaces, brackets and quotes."""
  return [part for part in _SEPARATORS.split(text) if part]


def integers(text: str) -> list[int] | None:
  """Returns the tokens as integers; None if one is not an integer."""
  parts = tokens(text)
  if all(_INTEGER.fullmatch(part) for part in parts):
    return [int(part) for part in parts]
  return None


def pairs(text: str) -> list[tuple[int, int]] | None:
  """Parses pairs of integers such as `0 3, 1 0` or `[(0, 3), ...]`, or None."""
  numbers = integers(text)
  if not numbers or len(numbers) % 2:
    return None
  return list(zip(numbers[::2], numbers[1::2], strict=True))


def points(text: str) -> list[tuple[Fraction, Fraction]] | None:
  """Parses pairs of exact numbers, or returns None."""
  parts = tokens(text)
  if (
    not parts
    or len(parts) % 2
    or not _POINTS.fullmatch(text)
    or not all(_NUMBER.fullmatch(part) for part in parts)
  ):
    return None
  numbers = [Fraction(part) for part in parts]
  return list(zip(numbers[::2], numbers[1::2], strict=True))


def number(text: str) -> Fraction | None:
  """Returns a number's exact value, or None. Commas may separate thousands."""
  text = text.strip()
  if _THOUSANDS.fullmatch(text):
    text = text.replace(",", "")
  return Fraction(text) if _NUMBER.fullmatch(text) else None


def same_number(reference: str, answer: str) -> bool:
  """Returns whether an answer is the reference number, maybe after a `$`.

  If the reference is not a whole number, a small tolerance applies.
  """
  wanted = Fraction(reference)
  given = number(answer.strip(" \n\t[]\"'`").removeprefix("$"))
  if given is None:
    return False
  tolerance = min(abs(wanted) * _RELATIVE, _ABSOLUTE)
  return abs(given - wanted) <= (0 if wanted.denominator == 1 else tolerance)


def same_tokens(reference: Sequence[str], answer: str) -> bool:
  """Returns whether an answer has these tokens, numbers by `same_number`."""
  given = tokens(answer)
  return len(given) == len(reference) and all(
    wanted == token
    or (number(wanted) is not None and same_number(wanted, token))
    for wanted, token in zip(reference, given, strict=True)
  )
