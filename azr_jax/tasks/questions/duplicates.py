"""Finds near duplicates among questions.

Two questions are near duplicates if their texts are equal after Unicode
compatibility normalization, ignoring case, whitespace runs and punctuation at
the ends of words (`.`, `,`, `?`, quotes ...). Punctuation inside words and
numbers matters: `1.5` is not `15`, and programs and grids consist of it. R1-CI
(section 2) removes near duplicates without giving a rule.
"""

import re
import unicodedata
from collections.abc import Iterable

from azr_jax.tasks.questions.question import Question

_END_MARKS = re.compile(r"[.,;:!?\"'`]+(?=\s|$)|(?:(?<=\s)|^)[\"'`]+")


def key(text: str) -> str:
  """Returns a key that is equal for near duplicates."""
  text = unicodedata.normalize("NFKC", text).casefold()
  return " ".join(_END_MARKS.sub("", text).split())


def distinct(
  questions: Iterable[Question], seen: Iterable[str] = ()
) -> list[Question]:
  """Removes near duplicates; the first of several questions stays.

  Args:
    questions: the questions to filter.
    seen: keys of other questions whose near duplicates are removed, too.
  """
  keys = set(seen)
  kept = []
  for question in questions:
    name = key(question.text)
    if name not in keys:
      keys.add(name)
      kept.append(question)
  return kept
