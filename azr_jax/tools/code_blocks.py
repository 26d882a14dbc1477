r"""Tool-call parsing: python blocks, tool outputs, answers.

R1-CI, table 1. A response ends with its first closed python block, which is the
tool call; other fences have no meaning. The tool output follows between
`OUTPUT_PREFIX` and `OUTPUT_SUFFIX`. The answer is written in `<<<...>>>`. Only
the model's own text is parsed, never a tool output.

A block opens at the end of a line with three or more backticks or tildes, a
name for Python (`py`, `Python`, `python3`), and optional blanks. It closes at a
line that starts with the same marks, indented no further than the opening. What
follows on that line is ignored, so sampling can stop there.
"""

import dataclasses
import re

from azr_jax.text import fences, tags

MARKS = "`", "~"
# Number of characters at the end of a line to search for an opening fence.
MAX_OPENING = 256
_OPENING = re.compile(
  r"(`{3,}|~{3,})[ \t]*(?:python3?|py3?)[ \t\r]*\Z", re.IGNORECASE
)
_ANSWER = "<<<", ">>>"
OUTPUT_PREFIX = "\n\nCode Execution Results: "
OUTPUT_SUFFIX = "\n\n"


@dataclasses.dataclass(frozen=True)
class CodeBlock:
  """A closed python block.

  Attributes:
    code: the text between the fences, without the opening's indentation.
    start: index of the first character of the opening fence.
    end: index after the last character of the closing fence.
  """

  code: str
  start: int
  end: int


@dataclasses.dataclass(frozen=True)
class OpeningFence:
  """The opening fence of a block.

  Attributes:
    marks: the backticks or tildes.
    chars_to_line_end: number of characters from the fence to the end of its
      line.
    indentation: the most indentation that the block's lines may have.
  """

  marks: str
  chars_to_line_end: int
  indentation: int

  @property
  def max_closing(self) -> int:
    """Number of characters that show whether a line closes the block."""
    return self.indentation + len(self.marks)

  def closing_end(self, line: str) -> int:
    """Returns the end of the closing fence in a line, or 0 if there is none.

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


def opening(line: str) -> OpeningFence | None:
  """Returns the block opening at the end of a line, or None.

  Args:
    line: a line without its line break. Only its last `MAX_OPENING` characters
      are searched, so the last `MAX_OPENING + 1` suffice.
  """
  is_whole, line = len(line) <= MAX_OPENING, line[-MAX_OPENING:]
  match = _OPENING.search(line)
  if match is None:
    return None
  before = line[: match.start()] if is_whole else "x"
  indentation = fences.indentation(before)
  if indentation is None and match[1][0] == "~":
    return None
  return OpeningFence(match[1], len(line) - match.start(), indentation or 0)


def find_block(text: str) -> CodeBlock | None:
  """Returns the first closed python block, or None."""
  opened, code_start, start = None, 0, 0
  while True:
    end = text.find("\n", start)
    if opened is not None:
      line = text[start : start + opened.max_closing]
      closing_end = opened.closing_end(line.partition("\n")[0])
      if closing_end:
        code = fences.dedented(text[code_start:start], opened.indentation)
        first = code_start - 1 - opened.chars_to_line_end
        return CodeBlock(code, first, start + closing_end)
    if end < 0:
      return None
    if opened is None:
      opened = opening(text[max(start, end - MAX_OPENING - 1) : end])
      code_start = end + 1
    start = end + 1


def find_answer(text: str) -> str | None:
  """Returns the text in the last pair of answer marks, stripped, or None."""
  return tags.last(tags.enclosed(text, *_ANSWER))


def find_tool_call(text: str) -> CodeBlock | None:
  """Returns the block of a response to run, or None.

  If an answer precedes the block, the response ends the conversation and the
  block is not a tool call.
  """
  block = find_block(text)
  if block is None:
    return None
  answers = tags.enclosed(text[: block.start], *_ANSWER)
  return block if next(answers, None) is None else None


def is_well_formed(response: str, is_last: bool) -> bool:
  """Returns whether a response has the format that the prompt asks for.

  The last response must end with its only pair of answer marks. Any other must
  end with its only python block.
  """
  text = response.rstrip()
  if is_last:
    answers = list(tags.enclosed(text, *_ANSWER))
    return len(answers) == 1 and text.endswith(_ANSWER[1])
  block = find_tool_call(text)
  return block is not None and block.end == len(text)
