"""Finds tags in responses, such as `<answer>`, in linear time.

A regular expression such as `<answer>(.*?)</answer>` looks for the end again
from each opening tag, so a response of opening tags alone takes quadratic time.
These functions look for each tag once, from left to right.
"""

from collections.abc import Iterable, Iterator


def enclosed(text: str, opening: str, closing: str) -> Iterator[str]:
  """Yields the texts between an opening tag and the next closing one.

  Each pair is looked for after the one before it.
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
  """Yields the texts between neighbouring tags, which hold no other tag."""
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
  """Returns the last of some texts, stripped, or None."""
  found = list(texts)
  return found[-1].strip() if found else None
