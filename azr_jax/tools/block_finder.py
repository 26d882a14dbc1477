"""Finds the end of a python block while it is sampled, in linear time.

A response ends with its first closed block (`code_blocks.py`). Tokens come a
few at a time, and there may be a fence in each line, so the response is not
decoded anew for each fence: only the new tokens are. Of the text before them,
the finder keeps a bounded part of the last line.
"""

import os.path
from collections.abc import Callable, Sequence

from azr_jax.tools import code_blocks

# The new tokens are decoded together with this many before them, because a
# character may begin in one token and end in another.
_CONTEXT_TOKENS = 8


class BlockFinder:
  """Looks for the end of the first closed block of one response."""

  def __init__(self, decode: Callable[[Sequence[int]], str]):
    """Starts with an empty response.

    Args:
      decode: token ids to text.
    """
    self._decode = decode
    self._opening: code_blocks.Opening | None = None
    # The end of the last line; once a block is open, its beginning.
    self._line = ""

  def end_of_block(
    self, token_ids: Sequence[int], response_start: int, num_checked: int
  ) -> int | None:
    """Finds the end of the block among new tokens.

    Args:
      token_ids: the completion so far.
      response_start: index of the response's first token.
      num_checked: how many of the tokens earlier calls have seen; no block
        ends among them.

    Returns:
      How many tokens there are up to the end of the block, or None.
    """
    context = max(response_start, num_checked - _CONTEXT_TOKENS)
    seen = self._decode(token_ids[context:num_checked])
    text = self._decode(token_ids[context:])
    if not self._add_text(text[len(os.path.commonprefix([seen, text])) :]):
      return None

    def has_block(count: int) -> bool:
      text = self._decode(token_ids[response_start:count])
      return code_blocks.find_block(text) is not None

    low, high = num_checked + 1, len(token_ids)
    if low > high or not has_block(high):
      return None
    while low < high:
      middle = (low + high) // 2
      low, high = (low, middle) if has_block(middle) else (middle + 1, high)
    return low

  def _add_text(self, text: str) -> bool:
    """Adds text of the response; returns whether it closes the block."""
    *ended, last = text.split("\n")
    for part in ended:
      if self._add_to_line(part):
        return True
      if self._opening is None:
        self._opening = code_blocks.opening(self._line)
      self._line = ""
    return self._add_to_line(last)

  def _add_to_line(self, part: str) -> bool:
    """Adds a part of a line; returns whether it closes the block."""
    self._line += part
    if self._opening is None:
      self._line = self._line[-code_blocks.MAX_OPENING - 1 :]
      return False
    self._line = self._line[: self._opening.max_closing]
    return self._opening.closing_end(self._line) > 0
