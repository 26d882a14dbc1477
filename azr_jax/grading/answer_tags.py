"""The answer tags of a reply: `<answer>...</answer>`."""

import re

# From the innermost opening tag to the first closing one.
_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


def last_answer(response: str) -> str | None:
  """The text of the last closed answer tag, or None."""
  found = _ANSWER.findall(response)
  return found[-1].strip() if found else None


def answer_blocks(response: str) -> int:
  """How many answer tags are closed: more than one hedges."""
  return len(re.findall(r"<answer>.*?</answer>", response, re.DOTALL))
