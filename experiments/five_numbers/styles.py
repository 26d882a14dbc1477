"""Styles of answers to sums of several numbers, and rewards for them."""

import re

from azr_jax.systems.custom import examples


def style(completion: str, question: str) -> str:
  """Returns whether `all` steps of a sum are written, `fewer` or `more`."""
  missing = _numbers(question) - 1 - _steps(completion)
  return "fewer" if missing > 0 else "more" if missing < 0 else "all"


def all_steps(completion: str, prompt: str) -> float:
  """Returns 1 for as many steps as the sum has and a box, right or wrong."""
  is_boxed = "</think>" in completion and "\\boxed{" in completion
  return float(is_boxed and style(completion, prompt) == "all")


def right_of_five(completion: str, prompt: str, answer: str) -> float:
  """Returns 1 for the right sum of five numbers."""
  is_right = examples.is_right(completion, answer)["correct"]
  return is_right * (_numbers(prompt) == 5)


def _numbers(question: str) -> int:
  return len(re.findall(r" [+-] ", question)) + 1


def _steps(completion: str) -> int:
  return completion.partition("</think>")[0].count("=")
