"""Parses code fences in responses, in time linear in the response's length.

| text | read as |
| --- | --- |
| three or more backticks or tildes, then a label | an opening fence |
| `py`, `Python`, `python3`, `py3`, in any case | the label `python` |
| as many of the same marks, alone on a line or at its end | a closing fence |
| an indented fence, or one in a list item | a fence; its lines are dedented |
| a longer fence around shorter ones | one fence, which contains the others |
| a labelled fence inside an unclosed one | it ends the unclosed one |
| marks, a label, text and the same marks on one line | an inline fence |
| an opening fence without a closing one | an unclosed fence |

Tildes open a fence only at the start of a line. A closing fence that is
indented further than its opening may belong to the content, so it counts only
if no other one follows.
"""

import bisect
import dataclasses
import re
from collections.abc import Iterator

PYTHON = "python"
MIN_MARKS = 3
# Maximum number of characters that are read before and after the marks.
MAX_INDENTATION, MAX_LABEL = 64, 200
# Average number of times that the searches may look at each mark. Beyond it,
# the next matching marks close a fence.
MAX_LOOKS = 20
_MARKS = re.compile(r"`{3,}|~{3,}")
_WORD = re.compile(r"[A-Za-z][\w+#.-]*")
_PYTHON_LABELS = frozenset(("python", "py", "python3", "py3"))
_LIST_ITEMS = frozenset(("", "-", "*", "+", ">"))


@dataclasses.dataclass(frozen=True)
class Fence:
  """A code fence.

  Attributes:
    label: the text after the opening marks in lower case; `PYTHON` for every
      name of the language.
    content: the text between the marks, without the opening's indentation and
      without trailing line breaks.
    is_closed: whether it has a closing fence.
    is_inline: whether it is on one line.
  """

  label: str
  content: str
  is_closed: bool = True
  is_inline: bool = False


def normalized(label: str) -> str:
  """Returns a label in lower case, or `PYTHON` for a name of the language."""
  label = label.strip().casefold()
  return PYTHON if label in _PYTHON_LABELS else label


def indentation(before: str) -> int | None:
  """Returns how far the marks are indented on their line.

  Args:
    before: the line up to the marks.

  Returns:
    The number of characters. None if they include anything but blanks, a list
    bullet or number, or a quote mark.
  """
  item = before.strip(" \t")
  is_numbered = item[-1:] in (".", ")") and item[:-1].isdecimal()
  return len(before) if item in _LIST_ITEMS or is_numbered else None


def dedented(text: str, count: int) -> str:
  """Removes up to `count` leading blanks from each line."""
  if not count:
    return text
  return re.sub(rf"^[ \t]{{1,{count}}}", "", text, flags=re.MULTILINE)


def read(text: str) -> list[Fence]:
  """Returns the fences of a response, in order."""
  return list(_Reader(text).fences())


@dataclasses.dataclass(frozen=True)
class _Marks:
  """Marks that may open or close a fence.

  Attributes:
    text: the marks.
    start: index of the first mark.
    line_start: index of the start of the line.
    line_end: index of the end of the line.
    before: the line up to the marks, or "x" if that is too long.
    after: the start of the rest of the line, stripped.
  """

  text: str
  start: int
  line_start: int
  line_end: int
  before: str
  after: str

  @property
  def depth(self) -> int:
    """The indentation of opening marks; 0 after other text."""
    return indentation(self.before) or 0

  @property
  def begins_line(self) -> bool:
    """Whether the marks follow only blanks."""
    return not self.before.strip(" \t")

  def may_open(self) -> bool:
    """Returns whether these marks open a fence if they close none."""
    return self.text[0] == "`" or indentation(self.before) is not None

  def may_close(self, opening: "_Marks") -> bool:
    """Returns whether these are enough marks of the same type."""
    return self.text.startswith(opening.text)

  def interrupts(self, opening: "_Marks") -> bool:
    """Returns whether these marks open a fence inside another fence."""
    return (
      self.begins_line
      and self.depth <= opening.depth
      and self.text == opening.text[:MIN_MARKS] == opening.text
      and _WORD.fullmatch(self.after) is not None
    )


class _Reader:
  """Pairs the marks of a text from left to right."""

  def __init__(self, text: str):
    self._text = text
    self._marks = list(_find(text))
    # A search may read far beyond the closing fence that it finds. The budget
    # keeps all searches together from taking quadratic time.
    self._looks_left = MAX_LOOKS * len(self._marks)

  def fences(self) -> Iterator[Fence]:
    """Yields the fences in order."""
    index = 0
    while index < len(self._marks):
      opening = self._marks[index]
      index += 1
      if not opening.may_open():
        continue
      if index < len(self._marks) and self._marks[index].line_end == (
        opening.line_end
      ):
        if self._marks[index].text == opening.text:
          yield self._inline(opening, self._marks[index])
          index += 1
        continue
      if opening.line_end == len(self._text):
        continue
      closing, interrupts = self._closing(opening, index)
      found = None if closing is None else self._marks[closing]
      yield self._fence(opening, found)
      index = len(self._marks) if closing is None else closing + 1 - interrupts

  def _inline(self, opening: _Marks, closing: _Marks) -> Fence:
    text = self._text[opening.start + len(opening.text) : closing.start].strip()
    label, _, content = text.partition(" ")
    if not content or not _WORD.fullmatch(label):
      label, content = "", text
    return Fence(normalized(label), content.strip(), is_inline=True)

  def _fence(self, opening: _Marks, closing: _Marks | None) -> Fence:
    end = len(self._text)
    if closing is not None:
      end = closing.line_start if closing.begins_line else closing.start
    content = dedented(self._text[opening.line_end + 1 : end], opening.depth)
    return Fence(
      normalized(opening.after), content.rstrip("\n"), closing is not None
    )

  def _closing(self, opening: _Marks, first: int) -> tuple[int | None, bool]:
    """Finds the end of a fence.

    Args:
      opening: the opening marks.
      first: index of the next marks.

    Returns:
      (index of the marks that end the fence or None, whether these marks open
      the next fence).
    """
    indented = None
    later = range(first, len(self._marks))
    for index in later[: self._looks_left]:
      self._looks_left -= 1
      marks = self._marks[index]
      if marks.interrupts(opening):
        return (index, True) if indented is None else (indented, False)
      if not marks.may_close(opening):
        continue
      if marks.begins_line and marks.depth > opening.depth:
        indented = index if indented is None else indented
      elif marks.begins_line or not marks.after:
        return index, False
    if indented is not None:
      return indented, False
    fitting = (i for i in later if self._marks[i].may_close(opening))
    return next(fitting, None), False


def _find(text: str) -> Iterator[_Marks]:
  breaks = [match.start() for match in re.finditer("\n", text)]
  for match in _MARKS.finditer(text):
    line = bisect.bisect_left(breaks, match.start())
    line_start = breaks[line - 1] + 1 if line else 0
    line_end = breaks[line] if line < len(breaks) else len(text)
    is_near = match.start() - line_start <= MAX_INDENTATION
    after = text[match.end() : min(line_end, match.end() + MAX_LABEL)]
    yield _Marks(
      match[0],
      match.start(),
      line_start,
      line_end,
      text[line_start : match.start()] if is_near else "x",
      after.strip(),
    )
