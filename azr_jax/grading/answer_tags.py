"""Finds the answer tags of a response, `<answer>...</answer>`."""

from azr_jax.text import tags

TAGS = "<answer>", "</answer>"


def last_answer(response: str) -> str | None:
  """Returns the text of the last closed answer tag, or None.

  Of nested tags, the innermost opening one counts.
  """
  return tags.last(tags.innermost(response, *TAGS))


def answer_blocks(response: str) -> int:
  """Returns the number of closed answer tags; more than one is hedging."""
  return sum(1 for _ in tags.enclosed(response, *TAGS))
