"""Finds tags such as `<answer>` in responses, in linear time.

A regular expression such as `<answer>(.*?)</answer>` searches for the end again
from every opening tag, so a response of opening tags takes quadratic time.
These functions search for each tag once, from left to right.
"""

from collections.abc import Iterable, Iterator


def enclosed(text: str, opening: str, closing: str) -> Iterator[str]:
  """Yields the texts between an opening tag and the next closing tag.

  Pairs do not overlap.
  """
  position = 0
  while True:
    start = text.find(opening, position)
    if start < 0:
      return
    start += len(opening)
    end = text.find(closing, start)
    if end < 0:
      return
    yield text[start:end]
    position = end + len(closing)


def innermost(text: str, opening: str, closing: str) -> Iterator[str]:
  """Yields the texts between adjacent tags, which contain no other tag."""
  position = 0
  while True:
    end = text.find(closing, position)
    if end < 0:
      return
    start = text.rfind(opening, position, end)
    if start >= 0:
      yield text[start + len(opening) : end]
    position = end + len(closing)


def last(texts: Iterable[str]) -> str | None:
  """Returns the last text, stripped, or None if there is none."""
  found = list(texts)
  return found[-1].strip() if found else None
