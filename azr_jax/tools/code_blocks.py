r"""Tool-call parsing: python blocks, tool outputs, answers.

R1-CI, table 1. A response ends with its first closed python block, which is its
tool call; other fences mean nothing. The tool output follows between
`OUTPUT_PREFIX` and `OUTPUT_SUFFIX`. An answer stands in `<<<...>>>`. Only what
the model wrote is parsed, never a tool output.

A block opens at the end of a line: three or more backticks or tildes, a name of
Python (`py`, `Python`, `python3`), and blanks. It closes where a line begins
with as many of the same marks, indented no further than those of the opening.
What follows them does not matter, so that sampling can stop there.
"""

import dataclasses
import re

from azr_jax.text import fences, tags

# Characters at the end of a line that are searched for an opening fence.
MAX_OPENING = 256
_OPENING = re.compile(
  r"(`{3,}|~{3,})[ \t]*(?:python3?|py3?)[ \t\r]*\Z", re.IGNORECASE
)
_ANSWER = "<<<", ">>>"
OUTPUT_PREFIX = "\n\nCode Execution Results: "
OUTPUT_SUFFIX = "\n\n"


@dataclasses.dataclass(frozen=True)
class Block:
  """A closed python block.

  Attributes:
    code: what stands between the fences, without the opening's indentation.
    start: index of the first character of the opening fence.
    end: index after the last character of the closing fence.
  """

  code: str
  start: int
  end: int


@dataclasses.dataclass(frozen=True)
class Opening:
  """The opening fence of a block.

  Attributes:
    marks: its backticks or tildes.
    chars_to_line_end: characters from its beginning to the end of its line.
    indentation: how far its lines may be indented.
  """

  marks: str
  chars_to_line_end: int
  indentation: int

  @property
  def max_closing(self) -> int:
    """Characters of a line that show whether it closes the block."""
    return self.indentation + len(self.marks)

  def closing_end(self, line: str) -> int:
    """Returns where the closing fence ends in a line, or 0 without one.

    Args:
      line: a line, or its first `max_closing` characters.
    """
    blanks = 0
    while blanks < self.indentation and line[blanks : blanks + 1] in (
      " ",
      "\t",
    ):
      blanks += 1
    is_closing = line.startswith(self.marks, blanks)
    return blanks + len(self.marks) if is_closing else 0


def opening(line: str) -> Opening | None:
  """Returns the opening of a block at the end of a line, or None.

  Args:
    line: a line without its line break, or its end if that is longer than
      `MAX_OPENING`, of which no more is read.
  """
  is_whole, line = len(line) <= MAX_OPENING, line[-MAX_OPENING:]
  match = _OPENING.search(line)
  if match is None:
    return None
  before = line[: match.start()] if is_whole else "x"
  indentation = fences.indentation(before)
  if indentation is None and match[1][0] == "~":
    return None
  return Opening(match[1], len(line) - match.start(), indentation or 0)


def find_block(text: str) -> Block | None:
  """Returns the first closed python block."""
  opened, code_start, start = None, 0, 0
  while True:
    end = text.find("\n", start)
    if opened is not None:
      line = text[start : start + opened.max_closing]
      closing_end = opened.closing_end(line.partition("\n")[0])
      if closing_end:
        code = fences.dedented(text[code_start:start], opened.indentation)
        first = code_start - 1 - opened.chars_to_line_end
        return Block(code, first, start + closing_end)
    if end < 0:
      return None
    if opened is None:
      opened = opening(text[max(start, end - MAX_OPENING - 1) : end])
      code_start = end + 1
    start = end + 1


def find_answer(text: str) -> str | None:
  """Returns the text in the last pair of answer marks, stripped, or None."""
  return tags.last(tags.enclosed(text, *_ANSWER))


def find_tool_call(text: str) -> Block | None:
  """Returns the block of a response whose code is to be run, or None.

  A response that gives an answer before its block ends the conversation, so
  its block is no tool call.
  """
  block = find_block(text)
  if block is None:
    return None
  answers = tags.enclosed(text[: block.start], *_ANSWER)
  return block if next(answers, None) is None else None


def is_well_formed(response: str, is_last: bool) -> bool:
  """Returns whether a response has the form that the prompt asks for.

  The last response ends with its only pair of answer marks; any other ends
  with its only python block.
  """
  text = response.rstrip()
  if is_last:
    answers = list(tags.enclosed(text, *_ANSWER))
    return len(answers) == 1 and text.endswith(_ANSWER[1])
  block = find_tool_call(text)
  return block is not None and block.end == len(text)
