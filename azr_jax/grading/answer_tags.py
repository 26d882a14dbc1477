"""Finds `<answer>...</answer>` tags in a response."""

from azr_jax.text import tags

TAGS = "<answer>", "</answer>"


def last_answer(response: str) -> str | None:
  """Returns the text of the last closed answer tag, or None.

  If tags are nested, the text starts at the innermost opening tag.
  """
  return tags.last(tags.innermost(response, *TAGS))


def answer_blocks(response: str) -> int:
  """Returns the number of closed answer tags. More than one is hedging."""
  return sum(1 for _ in tags.enclosed(response, *TAGS))
