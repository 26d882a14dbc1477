"""Splits the text of a formula into tokens in linear time.

A token is a command, a number, a run of letters, or one character. Spaces are
not tokens; each token records whether a space precedes it.
"""

import re

from azr_jax.grading.mathematics import symbols
from azr_jax.grading.mathematics.nodes import THOUSANDS

_TOKEN = re.compile(
  r"\\[A-Za-z]+|\\.|"
  r"[0-9]+(?:\.[0-9]+)?[eE][-+]?[0-9]+(?![0-9A-Za-z])|"
  r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+|[A-Za-z]+|\.\.\.+|\s+|<=|>=|!=|.",
  re.DOTALL,
)


class UnreadableError(ValueError):
  """The text is not a readable formula, for example due to unmatched braces."""


class TokenStream:
  """The unread tokens of a text."""

  def __init__(self, text: str):
    """Splits a text into tokens."""
    self._tokens: list[tuple[str, bool]] = []
    self._next = 0
    spaced = False
    for match in _TOKEN.finditer(text.translate(symbols.CHARACTERS)):
      token = match[0]
      if token == "\\!":  # A negative space, as in `1,\!000`.
        if self._tokens and self._tokens[-1][0] == ",":
          self._tokens[-1] = THOUSANDS, False
      elif token.isspace() or token == "~" or token[1:] in symbols.SPACES:
        spaced = True
      else:
        self._tokens.append((token, spaced))
        spaced = False

  def peek(self, ahead: int = 0) -> str | None:
    """Returns a token without consuming it, None past the end."""
    index = self._next + ahead
    return self._tokens[index][0] if index < len(self._tokens) else None

  def take(self) -> tuple[str, bool]:
    """Consumes a token; returns it and whether a space precedes it.

    Raises:
      UnreadableError: no token is left.
    """
    if self._next >= len(self._tokens):
      raise UnreadableError("unexpected end of the text")
    self._next += 1
    return self._tokens[self._next - 1]

  def skip(self, count: int) -> None:
    """Consumes and discards tokens."""
    for _ in range(count):
      self.take()

  def put_back(self, token: str) -> None:
    """Makes the last token, or the given rest of it, unread again."""
    if token:
      self._next -= 1
      self._tokens[self._next] = token, False
