"""How answers are written: tokens, integers, points; nothing is evaluated."""

import re
from collections.abc import Sequence
from fractions import Fraction

_SEPARATORS = re.compile(r"[\s,;\[\](){}\"'`]+")
_INTEGER = re.compile(r"[-+]?\d{1,12}", re.ASCII)
_LONG_INTEGER = re.compile(r"[-+]?\d{1,300}", re.ASCII)
_NUMBER = re.compile(
  r"[-+]?(?:\d{1,300}(?:\.\d{0,300})?|\.\d{1,300})(?:[eE][-+]?\d{1,3})?",
  re.ASCII,
)
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", re.ASCII)
_POINTS = re.compile(r"[\s\d,.;\[\]()+-]*", re.ASCII)
# How far an answer may lie from a reference that is no whole number.
_RELATIVE = Fraction(1, 1000)


def tokens(text: str) -> list[str]:
  """What stands between commas, spaces, brackets and quotes."""
  return [part for part in _SEPARATORS.split(text) if part]


def integers(text: str) -> list[int] | None:
  """Tokens as integers; None: one is none."""
  parts = tokens(text)
  if all(_INTEGER.fullmatch(part) for part in parts):
    return [int(part) for part in parts]
  return None


def pairs(text: str) -> list[tuple[int, int]] | None:
  """Integers two by two, `0 3, 1 0` or `[(0, 3), ...]`; None: they are not."""
  found = integers(text)
  if not found or len(found) % 2:
    return None
  return list(zip(found[::2], found[1::2], strict=True))


def points(text: str) -> list[tuple[Fraction, Fraction]] | None:
  """Numbers two by two, exactly; None: they are not."""
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
  """A number, with or without commas between thousands; None: there is none."""
  text = text.strip()
  if _THOUSANDS.fullmatch(text):
    text = text.replace(",", "")
  return Fraction(text) if _NUMBER.fullmatch(text) else None


def same_number(gold: str, answer: str) -> bool:
  """Whether an answer is the number; to three digits where it is no integer."""
  wanted, found = Fraction(gold), number(answer.strip(" []\"'`"))
  if found is None:
    return False
  room = 0 if wanted.denominator == 1 else abs(wanted) * _RELATIVE
  return abs(found - wanted) <= room


def same_tokens(gold: Sequence[str], answer: str) -> bool:
  """Whether an answer's tokens are these; integers by value."""

  def plain(part: str) -> str | int:
    return int(part) if _LONG_INTEGER.fullmatch(part) else part

  return [*map(plain, tokens(answer))] == [*map(plain, gold)]
