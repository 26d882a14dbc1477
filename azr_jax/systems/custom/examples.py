r"""Rewards of `configs/custom.py:tiny`; examples of what a reward may return.

The model solves sums of integers. It writes `12+7=19 19-4=15</think>` and then
the result, `<answer>\boxed{15}</answer>`.
"""

import re

_ANSWER = re.compile(r"<answer>\s*(?:\\boxed\{)?\s*(-?\d+)\s*\}?\s*</answer>")


def number_in(response: str) -> str | None:
  """Returns the number in a response's answer tags; None if there is none."""
  found = _ANSWER.search(response)
  return found[1] if found else None


def is_right(completion: str, answer: str) -> dict[str, float]:
  """Returns 1 for the right number, with metrics."""
  found = number_in(completion)
  correct = float(found == answer)
  return {
    "reward": correct,
    "correct": correct,
    "answered": float(found is not None),
  }


def shows_steps(completion: str, terms: int) -> float:
  """Returns the fraction of the sum's steps that the thinking spells out."""
  thinking = completion.partition("</think>")[0]
  return min(thinking.count("=") / (terms - 1), 1.0)
