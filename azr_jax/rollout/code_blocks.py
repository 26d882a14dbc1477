"""The marks of answers that run code: a python block, and `<<<answer>>>`.

Paper: seed 001, table 1. A reply ends with its first closed python block; other
fences mean nothing. Only what the model wrote is looked at, never a result.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence

_BLOCK = re.compile(
  r"```python[ \t]*\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)
_ANSWER = re.compile(r"<<<(.*?)>>>", re.DOTALL)
_FENCE = "```"


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


def end_of_block(
  ids: Sequence[int], before: int, decode: Callable[[Sequence[int]], str]
) -> int | None:
  """How many ids there are up to the end of the first python block, or None.

  Args:
    ids: a reply's.
    before: so many of them are known to close no block.
    decode: ids to text.
  """
  # The whole reply is read only when a fence has come.
  first = max(0, before - len(_FENCE))
  if before == len(ids) or _FENCE not in decode(ids[first:]):
    return None
  if find_block(decode(ids)) is None:
    return None
  low, high = before + 1, len(ids)
  while low < high:
    middle = (low + high) // 2
    if find_block(decode(ids[:middle])) is not None:
      high = middle
    else:
      low = middle + 1
  return low
