"""Styles of answers to sums of three to seven numbers, and rewards for them."""

from azr_jax.systems.custom import examples
from experiments.five_numbers import mistakes, styles

OWN = "own numbers"


def style(completion: str, question: str) -> str:
  """Returns whether a step adds each of the sum's numbers in turn.

  Results may be wrong. Answers with another number of steps are `fewer` or
  `more`, and those with other numbers `other numbers`.
  """
  steps = styles.style(completion, question)
  if steps != "all":
    return steps
  has_own = mistakes.has_own_numbers(question, completion)
  return OWN if has_own else "other numbers"


def right_of_four(completion: str, prompt: str, answer: str) -> float:
  """Returns 1 for the right sum of four numbers."""
  return _right(completion, prompt, answer, 4)


def right_of_five(completion: str, prompt: str, answer: str) -> float:
  """Returns 1 for the right sum of five numbers."""
  return _right(completion, prompt, answer, 5)


def right_of_six(completion: str, prompt: str, answer: str) -> float:
  """Returns 1 for the right sum of six numbers."""
  return _right(completion, prompt, answer, 6)


def _right(completion: str, prompt: str, answer: str, length: int) -> float:
  is_right = examples.is_right(completion, answer)["correct"]
  return is_right * (len(mistakes.terms(prompt)) == length)
