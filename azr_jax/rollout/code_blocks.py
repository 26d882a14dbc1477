"""The marks of conversations with code: python blocks, results, answers.

Paper: seed 001, table 1. A reply ends with its first closed python block; other
fences mean nothing. Its result follows between `LABEL` and `AFTER`. The answer
stands in `<<<...>>>`. Only what the model wrote is looked at, never a result.
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
_OVERLAP = 16  # Ids that a fence may begin in; some of them have no text.
LABEL = "\n\nCode Execution Results: "
AFTER = "\n\n"


@dataclasses.dataclass(frozen=True)
class Block:
  """A closed python block: its code, and where it begins and ends."""

  code: str
  start: int
  end: int


def find_block(text: str) -> Block | None:
  """The first closed python block; its closing fence begins a line."""
  found = _BLOCK.search(text)
  return found and Block(found["code"], found.start(), found.end())


def find_answer(text: str) -> str | None:
  """What stands in the last pair of answer marks, stripped."""
  found = _ANSWER.findall(text)
  return found[-1].strip() if found else None


def block_to_run(text: str) -> Block | None:
  """The block of a reply that asks for its code to be run.

  A reply that gives an answer before its block is a last one.
  """
  block = find_block(text)
  if block is None or _ANSWER.search(text[: block.start]):
    return None
  return block


def is_well_formed(reply: str, last: bool) -> bool:
  """Whether a reply is as it was asked for.

  The last one has exactly one pair of answer marks, which ends it; any other
  has exactly one python block, which ends it.
  """
  text = reply.rstrip()
  if last:
    return len(_ANSWER.findall(text)) == 1 and text.endswith(">>>")
  block = block_to_run(text)
  return block is not None and block.end == len(text)


def checks_itself(replies: Sequence[str]) -> bool:
  """Whether code was used to check: a script after the first compares."""
  blocks = [find_block(reply) for reply in replies]
  codes = [block.code for block in blocks if block is not None]
  return any(map(_compares, codes[1:]))


def _compares(code: str) -> bool:
  try:
    nodes = list(ast.walk(ast.parse(code)))
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return False
  return any(isinstance(node, ast.Compare | ast.Assert) for node in nodes)


def end_of_block(
  ids: Sequence[int],
  start: int,
  seen: int,
  decode: Callable[[Sequence[int]], str],
) -> int | None:
  """How many ids there are up to the end of the first python block, or None.

  Args:
    ids: of a conversation.
    start: the index of the reply's first id.
    seen: so many ids are known to close no block.
    decode: ids to text.
  """
  # The whole reply is read only when a fence has come.
  window = ids[max(start, seen - _OVERLAP) :]
  if seen == len(ids) or _FENCE not in decode(window):
    return None
  if find_block(decode(ids[start:])) is None:
    return None
  low, high = max(start, seen) + 1, len(ids)
  while low < high:
    middle = (low + high) // 2
    if find_block(decode(ids[start:middle])) is not None:
      high = middle
    else:
      low = middle + 1
  return low
