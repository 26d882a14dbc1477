"""Tool-call parsing: python blocks, tool outputs, answers.

R1-CI, table 1. A response ends with its first closed python block, which is its
tool call; other fences mean nothing. The tool output follows between
`OUTPUT_PREFIX` and `OUTPUT_SUFFIX`. An answer stands in `<<<...>>>`. Only what
the model wrote is parsed, never a tool output.
"""

import ast
import dataclasses
import re
from collections.abc import Callable, Sequence

_BLOCK = re.compile(
  r"```python[ \t]*\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)
_ANSWER = re.compile(r"<<<(.*?)>>>", re.DOTALL)
_FENCE = "```"
# A fence may begin in this many checked tokens. It has three characters, but
# some tokens have no text.
_OVERLAP_TOKENS = 16
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
  match = _BLOCK.search(text)
  return match and Block(match["code"], match.start(), match.end())


def find_answer(text: str) -> str | None:
  """Returns the text in the last pair of answer marks, stripped, or None."""
  answers = _ANSWER.findall(text)
  return answers[-1].strip() if answers else None


def find_tool_call(text: str) -> Block | None:
  """Returns the block of a response whose code is to be run, or None.

  A response that gives an answer before its block ends the conversation, so
  its block is no tool call.
  """
  block = find_block(text)
  if block is None or _ANSWER.search(text[: block.start]):
    return None
  return block


def is_well_formed(response: str, is_last: bool) -> bool:
  """Returns whether a response has the form that the prompt asks for.

  The last response ends with its only pair of answer marks; any other ends
  with its only python block.
  """
  text = response.rstrip()
  if is_last:
    return len(_ANSWER.findall(text)) == 1 and text.endswith(">>>")
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
    nodes = list(ast.walk(ast.parse(code)))
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return False
  return any(isinstance(node, ast.Compare | ast.Assert) for node in nodes)


def end_of_block(
  token_ids: Sequence[int],
  response_start: int,
  num_checked: int,
  decode: Callable[[Sequence[int]], str],
) -> int | None:
  """Finds the end of a response's first closed python block.

  Args:
    token_ids: the completion so far.
    response_start: index of the response's first token.
    num_checked: how many of the tokens are known to close no block.
    decode: token ids to text.

  Returns:
    How many tokens there are up to the end of the block, or None.
  """
  # The whole response is decoded only when a fence has come.
  window = token_ids[max(response_start, num_checked - _OVERLAP_TOKENS) :]
  if num_checked == len(token_ids) or _FENCE not in decode(window):
    return None
  if find_block(decode(token_ids[response_start:])) is None:
    return None
  low, high = max(response_start, num_checked) + 1, len(token_ids)
  while low < high:
    middle = (low + high) // 2
    if find_block(decode(token_ids[response_start:middle])) is not None:
      high = middle
    else:
      low = middle + 1
  return low
