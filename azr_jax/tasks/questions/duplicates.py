"""Near duplicates: questions that are one question when written alike.

Two questions are near duplicates if their texts are equal after Unicode's
compatibility normalisation, without regard to case, runs of white space, and
marks at the end of a word (`.`, `,`, `?`, quotes ...). Marks inside of a word
or number stay, for `1.5` is not `15`, and programs and grids are made of them.
R1-CI (section 2) removes near duplicates and does not say by which rule.
"""

import re
import unicodedata
from collections.abc import Iterable

from azr_jax.tasks.questions.question import Question

_END_MARKS = re.compile(r"[.,;:!?\"'`]+(?=\s|$)|(?:(?<=\s)|^)[\"'`]+")


def key(text: str) -> str:
  """Returns what near duplicates of a text have in common."""
  text = unicodedata.normalize("NFKC", text).casefold()
  return " ".join(_END_MARKS.sub("", text).split())


def distinct(
  questions: Iterable[Question], seen: Iterable[str] = ()
) -> list[Question]:
  """Returns the questions without near duplicates; the first one stays.

  Args:
    questions: any number of questions.
    seen: keys of other questions, whose near duplicates are left out too.
  """
  keys = set(seen)
  kept = []
  for question in questions:
    name = key(question.text)
    if name not in keys:
      keys.add(name)
      kept.append(question)
  return kept
