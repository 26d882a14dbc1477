"""Shortens texts."""


def without_middle(text: str, kept: int, gap: str) -> str:
  """Returns a text without its middle, so that `kept` characters remain.

  Args:
    text: returned as it is if it is not longer.
    kept: number of characters of the text to keep, half of them at each end.
    gap: what stands in place of the middle.
  """
  if kept >= len(text):
    return text
  half = kept // 2
  return text[:half] + gap + text[len(text) - half :]


def quoted(text: str, kept: int = 200) -> str:
  """Returns a short form of a text on one line, for a sentence."""
  return without_middle(" ".join(text.split()), kept, " ... ")
