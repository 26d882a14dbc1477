"""Grades answers of BIG-Bench Hard by equality, up to notation.

| target | correct answers |
| --- | --- |
| `(B)` | `B`, `(B)`, `B)`; no other words |
| an integer | the same, with or without commas between thousands |
| brackets | the same, without regard to spaces |
| words, True, yes, valid | the same, in any case, with any number of spaces |
"""

import re

_CHOICE = re.compile(r"\(([A-Z])\)")
_LETTER = re.compile(r"\(?([A-Z])\)?")
_INTEGER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)")
_BRACKETS = re.compile(r"[\s()\[\]{}<>]+")
_MAX_DIGITS = 300


def correct(target: str, answer: str) -> bool:
  """Returns whether an answer equals the target."""
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
      len(answer) <= _MAX_DIGITS
      and _INTEGER.fullmatch(answer) is not None
      and int(answer.replace(",", "")) == int(target.replace(",", ""))
    )
  return answer.casefold().split() == target.casefold().split()
