r"""Finds the answer in a response: the last balanced `\boxed{...}`.

| `location` | the answer is |
| --- | --- |
| `answer_tag` | the last box inside the last closed answer tag |
| `anywhere` | the last box of the response |
"""

import re

from azr_jax.grading import answer_tags

LOCATIONS = ("answer_tag", "anywhere")
_BOX = re.compile(r"\\(?:f?boxed|fbox|framebox)\s*\{")
# Escaped braces are matched first, so that they are skipped.
_BRACE = re.compile(r"\\[{}\\]|[{}]")
_BARE_BOX = re.compile(r"\\boxed\s+([^\s{}$\\]+)")


def find_answer(response: str, location: str = "answer_tag") -> str | None:
  """Returns the boxed text of a response, or None.

  Args:
    response: what the model wrote after the prompt.
    location: one of `LOCATIONS`.

  Raises:
    ValueError: `location` is not one of them.
  """
  if location not in LOCATIONS:
    raise ValueError(f"location={location!r}: expected one of {LOCATIONS}")
  if location == "anywhere":
    return last_boxed(response)
  tagged = answer_tags.last_answer(response)
  return None if tagged is None else last_boxed(tagged)


def last_boxed(text: str) -> str | None:
  r"""Returns the content of the last balanced `\boxed{...}`, or None.

  A box inside a box is part of the outer one. Without any, `\boxed 5` counts.
  """
  boxes = {opening.end() - 1 for opening in _BOX.finditer(text)}
  content: slice | None = None
  open_braces: list[int] = []
  for brace in _BRACE.finditer(text):
    if brace[0] == "{":
      open_braces.append(brace.start())
    elif brace[0] == "}" and open_braces:
      start = open_braces.pop()
      if start in boxes:  # An outer box closes after the boxes in it.
        content = slice(start + 1, brace.start())
  if content is None:
    bare = _BARE_BOX.findall(text)
    return bare[-1] if bare else None
  return text[content].strip()
