"""Finds the ends of responses that the device does not stop at."""

import functools
import re
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool, Int

from azr_jax.models.tokenizers import Tokenizer
from azr_jax.rollout.sequence import SequenceState


class _TokensWith:
  """The tokens whose text may contain a character or a part of it.

  Decoding the whole vocabulary would take too long, so a token is decoded when
  it is first asked for.
  """

  def __init__(self, tokenizer: Tokenizer, character: str):
    self._tokenizer, self._character = tokenizer, character
    # By token: 1 if it may contain the character, 0 if not, -1 if it has not
    # been decoded.
    self._known = np.zeros(0, np.int8)

  def find(
    self, token_ids: Int[np.ndarray, "*B N"]
  ) -> Bool[np.ndarray, "*B N"]:
    """Returns which of the tokens may contain the character."""
    more = int(token_ids.max(initial=-1)) + 1 - len(self._known)
    if more > 0:
      self._known = np.pad(self._known, (0, more), constant_values=-1)
    found = self._known.take(token_ids)
    if found.min(initial=0) < 0:
      for token in np.unique(token_ids[found < 0]).tolist():
        self._known[token] = self._learn(token)
      found = self._known.take(token_ids)
    return found.astype(bool)

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

  def __init__(
    self,
    tokenizer: Tokenizer,
    stop_strings: Sequence[str] = (),
    stop_after: str = "",
  ):
    """Finds the stop strings that are single tokens, for the device.

    Args:
      tokenizer: decodes responses and knows the stop ids.
      stop_strings: strings that end a response.
      stop_after: regular expression that the response must match before a stop
        string counts; "" always matches.
    """
    self._tokenizer = tokenizer
    self.stop_ids = set(tokenizer.eos_ids)
    # The device cannot check for the `stop_after` match.
    if not stop_after:
      tokens = map(tokenizer.token_id, stop_strings)
      self.stop_ids |= {token for token in tokens if token is not None}
    # A string that is one token may also be spelled by several others.
    self._stop_strings = tuple(stop_strings)
    self._stop_after = re.compile(stop_after)
    self._anywhere = re.compile("")
    self._token_id = functools.lru_cache(1 << 10)(tokenizer.token_id)
    self._by_character = _TokensByCharacter(tokenizer)

  def may_end(
    self,
    token_ids: Int[np.ndarray, "B N"],
    num_generated: Int[np.ndarray, " B"],
  ) -> Bool[np.ndarray, " B"]:
    """Returns where `find` must look for this object's stop strings.

    Few responses may have ended, so the host decodes few between two calls.

    Args:
      token_ids: the new tokens of each slot, with padding.
      num_generated: the number of new tokens of each slot.
    """
    rows = np.zeros(len(token_ids), bool)
    for last in {stop[-1] for stop in self._stop_strings}:
      ends = self._by_character[last].find(token_ids)
      some = np.flatnonzero(ends.any(1))
      is_new = np.arange(ends.shape[1]) < num_generated[some, None]
      ends = ends[some] & is_new
      for stop in self._stop_strings:
        if stop[-1] == last:
          rows[some] |= self._may_hold(stop, token_ids[some], ends).any(1)
    return rows

  def have(
    self,
    marks: Iterable[str],
    token_ids: Int[np.ndarray, "B N"],
    num_generated: Int[np.ndarray, " B"],
  ) -> Bool[np.ndarray, " B"]:
    """Returns where new tokens may have one of some characters.

    Args:
      marks: the characters.
      token_ids: as for `may_end`.
      num_generated: as for `may_end`.
    """
    is_new = np.arange(token_ids.shape[1]) < num_generated[:, None]
    rows = np.zeros(len(token_ids), bool)
    for mark in marks:
      rows |= (self._by_character[mark].find(token_ids) & is_new).any(1)
    return rows

  def _may_hold(
    self,
    stop: str,
    token_ids: Int[np.ndarray, "B N"],
    ends: Bool[np.ndarray, "B N"],
  ) -> Bool[np.ndarray, "B N"]:
    """Returns where a stop string may end: near a token with its beginning.

    Args:
      stop: the stop string.
      token_ids: the new tokens.
      ends: the tokens that may contain its last character.
    """
    places = np.arange(ends.shape[1])
    starts = self._by_character[stop[0]].find(token_ids)
    # It may also start in the call before.
    start = np.maximum.accumulate(np.where(starts, places, -1), axis=1)
    return ends & (places - start < len(stop.encode()))

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
    # The decoded response does not show special tokens (EOS, BOS, padding), so
    # a stop string that is one is found only by its id.
    ends = [
      self._stop_string_end(strings, after, token_ids, start, num_checked)
      for strings, after in (
        (self._stop_strings, self._stop_after),
        (more, self._anywhere),
      )
    ]
    own = [
      token for stop in more if (token := self._token_id(stop)) is not None
    ]
    wanted = np.asarray([*own, *sequence.request.stop_ids], np.int32)
    new = np.isin(token_ids[num_checked:], wanted)
    if new.any():
      ends.append(num_checked + int(new.argmax()) + 1)
    if sequence.request.tool_runner is not None:
      ends.append(
        sequence.request.tool_runner.end_of_response(
          sequence.id,
          sequence.request.prompt,
          token_ids,
          start,
          num_checked,
        )
      )
    return min((end for end in ends if end is not None), default=None)

  def _may_complete(
    self, stop_strings: Sequence[str], new_ids: Int[np.ndarray, " N"]
  ) -> bool:
    """Returns whether new tokens may hold the end of a stop string."""
    return any(
      self._by_character[stop[-1]].find(new_ids).any() for stop in stop_strings
    )

  def _stop_string_end(
    self,
    stop_strings: Sequence[str],
    stop_after: re.Pattern[str],
    token_ids: Int[np.ndarray, " S"],
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
