"""Styles of solutions, a reward for one, and how a start is told to use it."""

import re


def style(completion: str) -> str:
  """Returns `worked` for thinking with steps, else `guessed`."""
  return "worked" if _steps(completion) else "guessed"


def form(completion: str, terms: int) -> float:
  """Returns 1 for all steps of the sum and a box, right or wrong."""
  return float(_steps(completion) >= terms - 1 and "\\boxed{" in completion)


def first_number(question: str) -> str:
  """Returns the first number of a sum, with which its steps begin."""
  found = re.search(r"(-?\d+)(?: [+-] -?\d+)+ =", question)
  return found[1] if found else ""


def _steps(completion: str) -> int:
  return completion.partition("</think>")[0].count("=")
