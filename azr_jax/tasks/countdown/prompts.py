"""Countdown prompts: solve a puzzle, and propose one; how replies are read.

`full` explains the rules, for pretrained models; `compact` is one line, for
tiny ones; `few_shot` only continues a list and is for a proposer that follows
no instructions. Thinking and answers stand between the same tags as in every
system; in `full` and `compact` the reply begins inside the thinking.
"""

import re
from collections.abc import Sequence

from azr_jax.grading import answer_tags
from azr_jax.grading.countdown_puzzle import Puzzle

STYLES = ("full", "compact", "few_shot")
_LIST = re.compile(r"\[\s*(\d{1,4}(?:[,\s]+\d{1,4})*)\s*\][^\d-]*(\d{1,5})")
_FRAME = (
  "A user asks, an assistant helps. It first thinks, between <think> and "
  "</think>, and then answers, between <answer> and </answer>.\n"
  "User: {request}\nAssistant: Step by step, then.\n<think>"
)


def puzzle_line(puzzle: Puzzle) -> str:
  """A puzzle as prompts show it and proposals give it."""
  return f"[{' '.join(map(str, puzzle.numbers))}] {puzzle.target}"


def solve_prompt(puzzle: Puzzle, style: str) -> str:
  """Asks for an expression; `few_shot` asks as `full` does."""
  if style == "compact":
    return f"solve {puzzle_line(puzzle)}\n<think>"
  numbers = " ".join(map(str, puzzle.numbers))
  return _FRAME.format(
    request=f"Here are some numbers: [{numbers}]. Combine all of them, each "
    f"exactly once, to an expression whose value is {puzzle.target}. You may "
    "add, subtract, multiply, divide (+ - * /) and use brackets. Give the "
    "expression alone as the answer, such as <answer>(1 + 2) / 3</answer>."
  )


def propose_prompt(references: Sequence[Puzzle], style: str) -> str:
  """Asks for a new puzzle, unlike the references."""
  lines = "\n".join(map(puzzle_line, references))
  if style == "compact":
    return f"propose\n{lines}\n<think>"
  if style == "few_shot":
    return (
      "Number puzzles. Each line has three or four numbers in brackets, which "
      f"can be combined to the number behind them.\n{lines}\n"
    )
  return _FRAME.format(
    request="Invent a number puzzle: three or four whole numbers from 1 to 99 "
    "and a target from 10 to 100 that can be reached by adding, subtracting, "
    "multiplying and dividing them, each used exactly once. Make it neither "
    "trivial nor hopeless, and different from these:\n"
    f"{lines}\nAnswer with one such line, as <answer>[8 3 5] 19</answer>."
  )


def reply(thinking: str, answer: str) -> str:
  """A reply to a prompt that ends inside the thinking."""
  return f"{thinking}</think>\n<answer>{answer}</answer>"


def parse_proposal(text: str, style: str) -> Puzzle | None:
  """The puzzle of a reply: in its last answer, or its first line.

  Tolerant in how numbers are divided and what stands before the target.
  """
  if style == "few_shot":
    told = text.strip().partition("\n")[0]
  else:
    told = answer_tags.last_answer(text) or ""
  found = _LIST.search(told)
  if found is None:
    return None
  numbers = tuple(map(int, re.split(r"[,\s]+", found.group(1))))
  return Puzzle(numbers, int(found.group(2)))
