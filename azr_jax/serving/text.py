"""The text of a response while its tokens still come.

A character may be split over tokens, and a stop string over calls of the decode
loop. So text is given out as soon as no later token can change it, and the
parts are together what the whole response decodes to.
"""

from collections.abc import Sequence

from azr_jax.models.tokenizers import Tokenizer

# An incomplete character decodes to it.
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
  """Decodes tokens as they come.

  What is decoded begins some tokens early, with text that was given out before,
  because some tokenizers strip a space from the beginning of a text.
  """

  def __init__(self, tokenizer: Tokenizer):
    """Begins a response.

    Args:
      tokenizer: decodes ids.
    """
    self._tokenizer = tokenizer
    self._ids: list[int] = []
    self._start = 0  # Where decoding begins.
    self._done = 0  # The tokens before it have given their text.
    self._shown = ""  # The text of the tokens from `_start` to `_done`.

  def add(self, token_ids: Sequence[int]) -> str:
    """Returns the text that is complete with these tokens."""
    self._ids += token_ids
    text = self._decode(self._ids[self._start :])
    return "" if text.endswith(_REPLACEMENT) else self._take(text)

  def finish(self) -> str:
    """Returns the rest, where the last character may be incomplete."""
    return self._take(self._decode(self._ids[self._start :]))

  def _decode(self, ids: list[int]) -> str:
    """Returns text without special tokens, as vLLM does by default."""
    return self._tokenizer.decode(ids, skip_special=True)

  def _take(self, text: str) -> str:
    new = text[len(self._shown) :]
    alone = self._decode(self._ids[self._done :])
    if alone:
      self._start, self._shown = self._done, alone
    else:  # They are special tokens, or spaces at the beginning.
      self._shown = text
    self._done = len(self._ids)
    return new


class TokenTexts(dict[int, str]):
  """The text of each token by its id, decoded when it is first asked for.

  It is decoded behind a letter: alone, some tokenizers would strip the space
  that a token begins with.
  """

  def __init__(self, tokenizer: Tokenizer):
    """Decodes nothing yet.

    Args:
      tokenizer: decodes ids.
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
  """Withholds a stop string and what follows it.

  Of several it is the one that is complete first, however the text is cut into
  parts; of two that end together, the longer one.
  """

  def __init__(self, stop_strings: Sequence[str]):
    """Begins a response.

    Args:
      stop_strings: none of them is given out.
    """
    self._stops = tuple(stop_strings)
    self._held = ""
    self._is_stopped = False

  def add(self, text: str) -> str:
    """Returns the text before a stop string, as far as it is certain."""
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
    """Returns what was held back because a stop string could have begun."""
    return "" if self._is_stopped else self._release(len(self._held))

  def _release(self, count: int) -> str:
    text, self._held = self._held[:count], self._held[count:]
    return text

  def _unfinished(self) -> int:
    """Returns how many of the last characters may begin a stop string."""
    longest = min(max(map(len, self._stops)) - 1, len(self._held))
    return next(
      (
        count
        for count in range(longest, 0, -1)
        if any(s.startswith(self._held[-count:]) for s in self._stops)
      ),
      0,
    )
