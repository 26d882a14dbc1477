"""Finds the ends of responses that the device does not stop at."""

import functools
import re
from collections.abc import Sequence

import numpy as np

from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout.sequence import SequenceState
from azr_jax.rollout.settings import SamplerSettings


class _TokensWith:
  """Learns as they come which tokens may contain a character or part of it."""

  def __init__(self, tokenizer: Tokenizer, character: str):
    self._tokenizer, self._character = tokenizer, character
    # By token: whether it may, and whether that is known.
    self._may = np.zeros(0, bool)
    self._is_known = np.zeros(0, bool)

  def find(self, token_ids: np.ndarray) -> np.ndarray:
    """Returns which of the tokens may contain the character, as bools."""
    largest = int(token_ids.max(initial=-1))
    if largest >= len(self._may):
      more = largest + 1 - len(self._may)
      self._may = np.pad(self._may, (0, more))
      self._is_known = np.pad(self._is_known, (0, more))
    is_known = self._is_known[token_ids]
    if not is_known.all():
      for token in np.unique(token_ids[~is_known]).tolist():
        self._may[token] = self._learn(token)
        self._is_known[token] = True
    return self._may[token_ids]

  def _learn(self, token: int) -> bool:
    # A token decoded by itself loses a leading space.
    if self._character == " ":
      return True
    text = self._tokenizer.decode([token])
    # Part of a multi-byte character decodes to U+FFFD.
    is_part = not self._character.isascii() and "\ufffd" in text
    return is_part or self._character in text


class _TokensByCharacter(dict[str, _TokensWith]):
  """Maps a character to its `_TokensWith`, created on first use."""

  def __init__(self, tokenizer: Tokenizer):
    super().__init__()
    self._tokenizer = tokenizer

  def __missing__(self, character: str) -> _TokensWith:
    return self.setdefault(character, _TokensWith(self._tokenizer, character))


class ResponseEnds:
  """Finds response ends: stop strings, and ends that tool runners report.

  Attributes:
    stop_ids: token ids that end a response on the device.
  """

  def __init__(self, tokenizer: Tokenizer, settings: SamplerSettings):
    """Finds the stop strings that are single tokens, for the device.

    Args:
      tokenizer: decodes responses and knows the stop ids.
      settings: the stop strings.
    """
    self._tokenizer = tokenizer
    self.stop_ids = set(tokenizer.eos_ids)
    # The device cannot check for the `stop_after` match.
    if not settings.stop_after:
      tokens = map(tokenizer.token_id, settings.stop_strings)
      self.stop_ids |= {token for token in tokens if token is not None}
    # A string that is one token may also be spelled by several others.
    self._stop_strings = tuple(settings.stop_strings)
    self._stop_after = re.compile(settings.stop_after)
    self._anywhere = re.compile("")
    self._token_id = functools.lru_cache(1 << 10)(tokenizer.token_id)
    self._by_last = _TokensByCharacter(tokenizer)

  def may_end(
    self, token_ids: np.ndarray, num_generated: np.ndarray
  ) -> np.ndarray:
    """Returns where `find` must look for the stop strings of the settings.

    Few tokens hold the last character of a stop string, so few responses must
    be decoded between two calls.

    Args:
      token_ids: int32 [B, N], the new tokens of each slot, with padding.
      num_generated: int32 [B], the number of new tokens.

    Returns:
      bool [B].
    """
    rows = np.zeros(len(token_ids), bool)
    for last in {stop[-1] for stop in self._stop_strings}:
      found = self._by_last[last].find(token_ids)
      rows |= (found.argmax(1) < num_generated) & found.any(1)
    return rows

  def find(self, sequence: SequenceState, num_checked: int) -> int | None:
    """Finds the end of a response by stop string or tool runner.

    Args:
      sequence: a sequence whose last response has new tokens.
      num_checked: number of leading tokens known to contain no end.

    Returns:
      The number of tokens up to the first end, or None.
    """
    token_ids, start = sequence.token_ids, sequence.response_start
    more = sequence.request.stop_strings
    ends = [
      self._stop_string_end(strings, after, token_ids, start, num_checked)
      for strings, after in (
        (self._stop_strings, self._stop_after),
        (more, self._anywhere),
      )
    ]
    ends += [self._token_end(stop, token_ids, num_checked) for stop in more]
    if sequence.request.tool_runner is not None:
      ends.append(
        sequence.request.tool_runner.end_of_response(
          sequence.id, token_ids.tolist(), start, num_checked
        )
      )
    return min((end for end in ends if end is not None), default=None)

  def _token_end(
    self, stop: str, token_ids: np.ndarray, num_checked: int
  ) -> int | None:
    """Returns the number of tokens up to a stop string's own token, or None.

    The decoded response does not show special tokens (EOS, BOS, padding), so
    such a stop string is found only by its id.
    """
    wanted = self._token_id(stop)
    if wanted is None:
      return None
    found = np.flatnonzero(token_ids[num_checked:] == wanted)
    return num_checked + int(found[0]) + 1 if len(found) else None

  def _may_complete(
    self, stop_strings: Sequence[str], new_ids: np.ndarray
  ) -> bool:
    """Returns whether new tokens may hold the end of a stop string."""
    return any(
      self._by_last[stop[-1]].find(new_ids).any() for stop in stop_strings
    )

  def _stop_string_end(
    self,
    stop_strings: Sequence[str],
    stop_after: re.Pattern[str],
    token_ids: np.ndarray,
    response_start: int,
    num_checked: int,
  ) -> int | None:
    """Returns the number of tokens up to the end of a stop string, or None.

    A stop string may start in the checked tokens, but at most as many tokens
    back as it has bytes, because a token may be a single byte. `stop_after` is
    only searched for once a response contains a stop string.
    """
    if not stop_strings or num_checked == len(token_ids):
      return None
    if not self._may_complete(stop_strings, token_ids[num_checked:]):
      return None
    longest = max(len(stop.encode()) for stop in stop_strings)
    first = max(response_start, num_checked - longest)

    def text(first: int, count: int) -> str:
      return self._tokenizer.decode(token_ids[first:count].tolist())

    def stops(count: int) -> bool:
      searched, start = text(first, count), 0
      if stop_after.pattern:
        searched = text(response_start, count)
        before = stop_after.search(searched)
        if before is None:
          return False
        start = before.end()
      return any(searched.find(s, start) >= 0 for s in stop_strings)

    window = text(first, len(token_ids))
    if not any(stop in window for stop in stop_strings):
      return None
    if not stops(len(token_ids)):
      return None
    low, high = num_checked + 1, len(token_ids)
    while low < high:
      middle = (low + high) // 2
      low, high = (low, middle) if stops(middle) else (middle + 1, high)
    return low
