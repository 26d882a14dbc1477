"""Finds the end of a python block while it is sampled, in linear time.

A response ends with its first closed block (`code_blocks.py`). Tokens come a
few at a time, and there may be a fence in each line, so the response is not
decoded anew for each fence: only the new tokens are. Of the text before them,
the finder keeps what may be the beginning of a mark.
"""

import os.path
from collections.abc import Callable, Sequence

from azr_jax.rollout import code_blocks

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
    self._is_open = False
    self._kept = ""

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
    if not self._closes(text[len(os.path.commonprefix([seen, text])) :]):
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

  def _closes(self, text: str) -> bool:
    """Returns whether a block is closed by more text of the response."""
    self._kept += text
    if not self._is_open:
      self._open()
    if not self._is_open:
      return False
    is_closed = code_blocks.CLOSING in self._kept
    self._kept = self._kept[1 - len(code_blocks.CLOSING) :]
    return is_closed

  def _open(self) -> None:
    """Looks for an opening fence in the text that is kept, and shortens it."""
    text, start, opening = self._kept, 0, code_blocks.OPENING
    while (found := text.find(opening, start)) >= 0:
      start = found + len(opening)
      line_end = code_blocks.end_of_blanks(text, start)
      if line_end == len(text):  # More blanks and the line break may follow.
        self._kept = opening
        return
      if text.startswith("\n", line_end):
        self._is_open = True
        self._kept = text[line_end:]
        return
    self._kept = text[1 - len(opening) :]
