"""Splits the text of a formula into tokens, from left to right, in linear time.

A token is a command, a number, a run of letters, or one character. Spaces are
not tokens: each token says whether a space stands before it.
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
  """A text is no formula: its braces do not match, or are too deep."""


class Tokens:
  """The tokens of a text that are not yet read."""

  def __init__(self, text: str):
    """Splits a text."""
    self._tokens: list[tuple[str, bool]] = []
    self._next = 0
    spaced = False
    for match in _TOKEN.finditer(text.translate(symbols.CHARACTERS)):
      token = match[0]
      if token == "\\!":  # A space of negative width.
        if self._tokens and self._tokens[-1][0] == ",":
          self._tokens[-1] = THOUSANDS, False
      elif token.isspace() or token == "~" or token[1:] in symbols.SPACES:
        spaced = True
      else:
        self._tokens.append((token, spaced))
        spaced = False

  def peek(self, ahead: int = 0) -> str | None:
    """Returns a token that stays unread, or None after the end."""
    index = self._next + ahead
    return self._tokens[index][0] if index < len(self._tokens) else None

  def take(self) -> tuple[str, bool]:
    """Reads a token; returns it, and whether a space stands before it.

    Raises:
      UnreadableError: the text has ended.
    """
    if self._next >= len(self._tokens):
      raise UnreadableError("the text ends too early")
    self._next += 1
    return self._tokens[self._next - 1]

  def skip(self, count: int) -> None:
    """Reads some tokens for nothing."""
    for _ in range(count):
      self.take()

  def put_back(self, token: str) -> None:
    """Leaves the token that was read last, or a part of it, to be read."""
    if token:
      self._next -= 1
      self._tokens[self._next] = token, False
