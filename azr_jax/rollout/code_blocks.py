"""Tool-call parsing: python blocks, tool outputs, answers.

R1-CI, table 1. A response ends with its first closed python block, which is its
tool call; other fences mean nothing. The tool output follows between
`OUTPUT_PREFIX` and `OUTPUT_SUFFIX`. An answer stands in `<<<...>>>`. Only what
the model wrote is parsed, never a tool output.
"""

import ast
import dataclasses
from collections.abc import Sequence

from azr_jax.executor import literals
from azr_jax.grading import marks

OPENING = "```python"  # Blanks may follow it on its line, and nothing else.
CLOSING = "\n```"
_ANSWER = "<<<", ">>>"
OUTPUT_PREFIX = "\n\nCode Execution Results: "
OUTPUT_SUFFIX = "\n\n"


@dataclasses.dataclass(frozen=True)
class Block:
  """A closed python block.

  Attributes:
    code: what stands between the fences.
    start: index of the first character of the opening fence.
    end: index after the last character of the closing fence.
  """

  code: str
  start: int
  end: int


def find_block(text: str) -> Block | None:
  """Returns the first closed python block; its closing fence begins a line."""
  position = 0
  while (start := text.find(OPENING, position)) >= 0:
    position = start + len(OPENING)
    line_end = end_of_blanks(text, position)
    if text.startswith("\n", line_end):
      # A block may be empty, so its first line break may be its last.
      end = text.find(CLOSING, line_end)
      code = text[line_end + 1 : end + 1]
      return None if end < 0 else Block(code, start, end + len(CLOSING))
  return None


def end_of_blanks(text: str, start: int) -> int:
  """Returns the index of the first character from `start` that is no blank."""
  while text[start : start + 1] in (" ", "\t"):
    start += 1
  return start


def find_answer(text: str) -> str | None:
  """Returns the text in the last pair of answer marks, stripped, or None."""
  return marks.last(marks.enclosed(text, *_ANSWER))


def find_tool_call(text: str) -> Block | None:
  """Returns the block of a response whose code is to be run, or None.

  A response that gives an answer before its block ends the conversation, so
  its block is no tool call.
  """
  block = find_block(text)
  if block is None:
    return None
  answers = marks.enclosed(text[: block.start], *_ANSWER)
  return block if next(answers, None) is None else None


def is_well_formed(response: str, is_last: bool) -> bool:
  """Returns whether a response has the form that the prompt asks for.

  The last response ends with its only pair of answer marks; any other ends
  with its only python block.
  """
  text = response.rstrip()
  if is_last:
    answers = list(marks.enclosed(text, *_ANSWER))
    return len(answers) == 1 and text.endswith(_ANSWER[1])
  block = find_tool_call(text)
  return block is not None and block.end == len(text)


def has_self_check(responses: Sequence[str]) -> bool:
  """Returns whether code was used as a check: a later script compares."""
  blocks = [find_block(response) for response in responses]
  codes = [block.code for block in blocks if block is not None]
  return any(map(_compares, codes[1:]))


def _compares(code: str) -> bool:
  """Returns whether a script has a comparison or an assertion."""
  try:
    tree = literals.guarded_parse(code, "exec")
  except literals.ParseError:
    return False
  return any(
    isinstance(node, ast.Compare | ast.Assert) for node in ast.walk(tree)
  )
