"""How answers are written: tokens, integers, points; nothing is evaluated."""

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
# How far an answer may lie from a reference that is no whole number: the
# smaller of a share of it, and two digits after the point.
_RELATIVE, _ABSOLUTE = Fraction(1, 1000), Fraction(5, 1000)


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
  """Whether an answer is the number, after `$` or not; nearly, if broken."""
  wanted = Fraction(gold)
  found = number(answer.strip(" \n\t[]\"'`").removeprefix("$"))
  if found is None:
    return False
  room = min(abs(wanted) * _RELATIVE, _ABSOLUTE)
  return abs(found - wanted) <= (0 if wanted.denominator == 1 else room)


def same_tokens(gold: Sequence[str], answer: str) -> bool:
  """Whether an answer's tokens are these; numbers as in `same_number`."""
  found = tokens(answer)
  return len(found) == len(gold) and all(
    one == other or (number(one) is not None and same_number(one, other))
    for one, other in zip(gold, found, strict=True)
  )
