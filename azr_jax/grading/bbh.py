"""Grading of BIG-Bench Hard: exact, but for how an answer may be written.

| target | right is |
| --- | --- |
| `(B)` | `B`, `(B)`, `B)`; no words beside it |
| an integer | the same, with or without commas between thousands |
| brackets | the same, spaces aside |
| words, True, yes, valid | the same, in any case; one space is as many |
"""

import re

_CHOICE = re.compile(r"\(([A-Z])\)")
_LETTER = re.compile(r"\(?([A-Z])\)?")
_INTEGER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)")
_BRACKETS = re.compile(r"[\s()\[\]{}<>]+")
_DIGITS = 300


def correct(target: str, answer: str) -> bool:
  """Whether an answer is the target."""
  answer = answer.strip().strip("`\"'").strip()
  if _BRACKETS.fullmatch(target):
    return "".join(answer.split()) == "".join(target.split())
  answer = answer.removesuffix(".").strip()
  choice = _CHOICE.fullmatch(target)
  if choice:
    letter = _LETTER.fullmatch(answer)
    return letter is not None and letter[1] == choice[1]
  if _INTEGER.fullmatch(target):
    return (
      len(answer) <= _DIGITS
      and _INTEGER.fullmatch(answer) is not None
      and int(answer.replace(",", "")) == int(target.replace(",", ""))
    )
  return answer.casefold().split() == target.casefold().split()
