"""Grades BIG-Bench Hard answers by equality, up to notation.

| target | correct answers |
| --- | --- |
| `(B)` | `B`, `(B)`, `B)`, `( B )`; no extra words, no lower case |
| an integer | the same value: `5.0`, `1,234` with commas between thousands |
| brackets | the same brackets; whitespace is ignored |
| words, True, yes, valid | the same words in the same order, in any case |

Commas between words and runs of spaces count as one space, so `apple, bear`
equals `apple bear`. Every dash counts as a hyphen or minus sign, and curly
apostrophes count as straight ones. Quotes around an answer and a full stop
after it are dropped.
"""

import re
from fractions import Fraction

_CHOICE = re.compile(r"\(([A-Z])\)")
_LETTER = re.compile(r"\(?\s*([A-Z])\s*\)?")
_INTEGER = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)")
_NUMBER = re.compile(_INTEGER.pattern + r"(?:\.[0-9]*)?")
_BRACKETS = re.compile(r"[\s()\[\]{}<>]+")
_MAX_NUMBER_CHARS = 300
_PLAIN = str.maketrans(
  {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d", "-"),
    **dict.fromkeys("\u2018\u2019", "'"),
    **dict.fromkeys("\u201c\u201d", '"'),
  }
)


def correct(target: str, answer: str) -> bool:
  """Returns whether an answer equals the target."""
  answer = answer.translate(_PLAIN).strip().strip("`\"'").strip()
  if _BRACKETS.fullmatch(target):
    return "".join(answer.split()) == "".join(target.split())
  answer = answer.removesuffix(".").strip()
  choice = _CHOICE.fullmatch(target)
  if choice:
    letter = _LETTER.fullmatch(answer)
    return letter is not None and letter[1] == choice[1]
  if _INTEGER.fullmatch(target):
    return (
      len(answer) <= _MAX_NUMBER_CHARS
      and _NUMBER.fullmatch(answer) is not None
      and _value(answer) == _value(target)
    )
  return _words(answer) == _words(target)


def _value(text: str) -> Fraction:
  return Fraction(text.replace(",", "").removesuffix("."))


def _words(text: str) -> list[str]:
  return text.translate(_PLAIN).casefold().replace(",", " ").split()
