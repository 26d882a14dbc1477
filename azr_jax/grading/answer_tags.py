"""Finds the answer tags of a response, `<answer>...</answer>`."""

import re

# From the innermost opening tag to the first closing one.
_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


def last_answer(response: str) -> str | None:
  """Returns the text of the last closed answer tag, or None."""
  answers = _ANSWER.findall(response)
  return answers[-1].strip() if answers else None


def answer_blocks(response: str) -> int:
  """Returns the number of closed answer tags; more than one is hedging."""
  return len(re.findall(r"<answer>.*?</answer>", response, re.DOTALL))
