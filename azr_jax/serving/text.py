"""Decodes a response while its tokens arrive.

A character may span several tokens, and a stop string several calls of the
decode loop. Text is released as soon as later tokens cannot change it. The
released parts join to the text that the whole response decodes to.
"""

from collections.abc import Sequence

from azr_jax.models.tokenizers import Tokenizer

# What an incomplete character decodes to.
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
  """Decodes tokens as they arrive.

  It decodes from some tokens further back, with text that was already released,
  because some tokenizers strip a leading space.
  """

  def __init__(self, tokenizer: Tokenizer):
    """Starts an empty response.

    Args:
      tokenizer: decodes token ids.
    """
    self._tokenizer = tokenizer
    self._ids: list[int] = []
    self._start = 0  # Index of the first token to decode.
    self._done = 0  # Number of tokens whose text was released.
    self._shown = ""  # Text of the tokens from `_start` to `_done`.

  def add(self, token_ids: Sequence[int]) -> str:
    """Adds tokens and returns the text that they complete."""
    self._ids += token_ids
    text = self._decode(self._ids[self._start :])
    return "" if text.endswith(_REPLACEMENT) else self._take(text)

  def finish(self) -> str:
    """Returns the remaining text; its last character may be incomplete."""
    return self._take(self._decode(self._ids[self._start :]))

  def _decode(self, ids: list[int]) -> str:
    """Decodes without special tokens, as vLLM does by default."""
    return self._tokenizer.decode(ids, skip_special=True)

  def _take(self, text: str) -> str:
    new = text[len(self._shown) :]
    alone = self._decode(self._ids[self._done :])
    if alone:
      self._start, self._shown = self._done, alone
    else:  # The new tokens are special tokens, or spaces at the start.
      self._shown = text
    self._done = len(self._ids)
    return new


class TokenTexts(dict[int, str]):
  """The text of each token by its id, decoded on first use.

  Tokens are decoded after a letter, because some tokenizers strip a leading
  space.
  """

  def __init__(self, tokenizer: Tokenizer):
    """Creates an empty cache.

    Args:
      tokenizer: decodes token ids.
    """
    super().__init__()
    self._tokenizer = tokenizer
    self._before = tokenizer.encode("a")
    self._start = len(tokenizer.decode(self._before))

  def __missing__(self, token_id: int) -> str:
    ids = [*self._before, token_id]
    text = self._tokenizer.decode(ids, skip_special=True)[self._start :]
    return self.setdefault(token_id, text)


class StopFilter:
  """Withholds a stop string and the text after it.

  The stop string that is complete first wins, wherever the text is cut into
  parts. If two end at the same character, the longer one wins.
  """

  def __init__(self, stop_strings: Sequence[str]):
    """Starts an empty response.

    Args:
      stop_strings: the strings to withhold.
    """
    self._stops = tuple(stop_strings)
    self._held = ""
    self._is_stopped = False

  def add(self, text: str) -> str:
    """Adds text and returns what certainly precedes any stop string."""
    if not self._stops:
      return text
    if self._is_stopped:
      return ""
    self._held += text
    found = [(self._held.find(stop), len(stop)) for stop in self._stops]
    ends = [(start + length, start) for start, length in found if start >= 0]
    if ends:
      self._is_stopped = True
      _, start = min(ends)
      return self._release(start)
    return self._release(len(self._held) - self._unfinished())

  def finish(self) -> str:
    """Returns the text withheld because a stop string might have started."""
    return "" if self._is_stopped else self._release(len(self._held))

  def _release(self, count: int) -> str:
    text, self._held = self._held[:count], self._held[count:]
    return text

  def _unfinished(self) -> int:
    """Returns the number of last characters that may start a stop string."""
    longest = min(max(map(len, self._stops)) - 1, len(self._held))
    return next(
      (
        count
        for count in range(longest, 0, -1)
        if any(s.startswith(self._held[-count:]) for s in self._stops)
      ),
      0,
    )
