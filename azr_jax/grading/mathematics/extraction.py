r"""Finds the answer in a response: the last balanced `\boxed{...}`.

| `location` | answer |
| --- | --- |
| `answer_tag` | the last box inside the last closed answer tag |
| `anywhere` | the last box in the response |
"""

import re

from azr_jax.grading import answer_tags

LOCATIONS = ("answer_tag", "anywhere")
_BOX = re.compile(r"\\(?:f?boxed|fbox|framebox)\s*\{")
# Escaped braces match the first branch, which skips them.
_BRACE = re.compile(r"\\[{}\\]|[{}]")
_BARE_BOX = re.compile(r"\\boxed\s+([^\s{}$\\]+)")


def find_answer(response: str, location: str = "answer_tag") -> str | None:
  """Returns the boxed answer of a response, or None.

  Args:
    response: the model's text after the prompt.
    location: one of `LOCATIONS`.

  Raises:
    ValueError: the location is unknown.
  """
  if location not in LOCATIONS:
    raise ValueError(f"location={location!r}: expected one of {LOCATIONS}")
  if location == "anywhere":
    return last_boxed(response)
  tagged = answer_tags.last_answer(response)
  return None if tagged is None else last_boxed(tagged)


def last_boxed(text: str) -> str | None:
  r"""Returns the content of the last balanced `\boxed{...}`, or None.

  A nested box is part of the outer one. If no box has braces, `\boxed 5`
  counts.
  """
  boxes = {opening.end() - 1 for opening in _BOX.finditer(text)}
  content: slice | None = None
  open_braces: list[int] = []
  for brace in _BRACE.finditer(text):
    if brace[0] == "{":
      open_braces.append(brace.start())
    elif brace[0] == "}" and open_braces:
      start = open_braces.pop()
      if start in boxes:  # An outer box closes last, so it wins.
        content = slice(start + 1, brace.start())
  if content is None:
    bare = _BARE_BOX.findall(text)
    return bare[-1] if bare else None
  return text[content].strip()
