"""Finds the end of a python block during sampling, in linear time.

A response ends with its first closed block (`code_blocks.py`). Tokens arrive a
few at a time, and any line may contain a fence. Decoding the whole response at
each fence would be quadratic, so the finder decodes only the new tokens and
keeps a bounded part of the last line.
"""

import os.path
from collections.abc import Callable

import numpy as np
from jaxtyping import Int32

from azr_jax.tools import code_blocks

# New tokens are decoded together with this many earlier ones, because a
# character may be split between tokens.
_CONTEXT_TOKENS = 8


class BlockFinder:
  """Finds the end of the first closed block of one response."""

  def __init__(self, decode: Callable[[list[int]], str], begun: str = ""):
    """Starts with an empty response.

    Args:
      decode: token ids -> text.
      begun: the start of the response, before its first token. It contains no
        closed block.
    """
    self._decode, self._begun = decode, begun
    # Number of leading tokens that were decoded.
    self._read = 0
    self._opening: code_blocks.OpeningFence | None = None
    # The end of the last line, or its start once a block is open.
    self._line = ""
    self._add_text(begun)

  def end_of_block(
    self,
    token_ids: Int32[np.ndarray, " S"],
    response_start: int,
    num_checked: int,
  ) -> int | None:
    """Finds the end of the block among the new tokens.

    Args:
      token_ids: the completion so far. Tokens that no call has seen before are
        read, too.
      response_start: index of the response's first token.
      num_checked: number of leading tokens among which no block ends.

    Returns:
      The number of tokens up to the end of the block, or None.
    """
    start = max(response_start, self._read)
    self._read = len(token_ids)
    context = max(response_start, start - _CONTEXT_TOKENS)
    seen = self._decode(token_ids[context:start].tolist())
    text = self._decode(token_ids[context:].tolist())
    if not self._add_text(text[len(os.path.commonprefix([seen, text])) :]):
      return None

    def has_block(count: int) -> bool:
      text = self._decode(token_ids[response_start:count].tolist())
      return code_blocks.find_block(f"{self._begun}{text}") is not None

    low, high = num_checked + 1, len(token_ids)
    if low > high or not has_block(high):
      return None
    while low < high:
      middle = (low + high) // 2
      low, high = (low, middle) if has_block(middle) else (middle + 1, high)
    return low

  def _add_text(self, text: str) -> bool:
    """Appends text of the response; returns whether it closes the block."""
    *ended, last = text.split("\n")
    for part in ended:
      if self._add_to_line(part):
        return True
      if self._opening is None:
        self._opening = code_blocks.opening(self._line)
      self._line = ""
    return self._add_to_line(last)

  def _add_to_line(self, part: str) -> bool:
    """Appends to the last line; returns whether that closes the block."""
    self._line += part
    if self._opening is None:
      self._line = self._line[-code_blocks.MAX_OPENING - 1 :]
      return False
    self._line = self._line[: self._opening.max_closing]
    return self._opening.closing_end(self._line) > 0
