"""Countdown prompts for solvers and proposers, and parsing of proposals.

| prompt format | use |
| --- | --- |
| `full` | pretrained models: explains the rules |
| `compact` | tiny models: one line |
| `few_shot` | proposers that cannot follow instructions: a list to continue |

A folder of templates has `countdown_solve.txt` and `countdown_propose.txt`.
Thinking and answers have the same tags as in every system. In `full` and
`compact` the response starts inside the thinking.
"""

import re
from collections.abc import Sequence

import numpy as np

from azr_jax.grading import answer_tags
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.templates import PromptFile, PromptFormat, Templates

PROMPT_FORMATS = ("full", "compact", "few_shot")
SOLVE, PROPOSE = "countdown_solve", "countdown_propose"
FILES = {
  SOLVE: PromptFile(("NUMBERS", "TARGET")),
  PROPOSE: PromptFile(("REFERENCES",)),
}
_PUZZLE = re.compile(r"\[\s*(\d{1,4}(?:[,\s]+\d{1,4})*)\s*\][^\d-]*(\d{1,5})")
_FULL = (
  "A user asks, an assistant helps. It first thinks, between <think> and "
  "</think>, and then answers, between <answer> and </answer>.\n"
  "User: {request}\nAssistant: Step by step, then.\n<think>"
)


def puzzle_line(puzzle: Puzzle) -> str:
  """Formats a puzzle as one line, as in prompts and proposals."""
  return f"[{' '.join(map(str, puzzle.numbers))}] {puzzle.target}"


def solve_prompt(puzzle: Puzzle, prompt_format: PromptFormat) -> str:
  """Returns a prompt that asks for an expression.

  Args:
    puzzle: numbers and target.
    prompt_format: one of `PROMPT_FORMATS`, or a user's prompts. `few_shot` is
      the same as `full`.
  """
  if prompt_format == "compact":
    return f"solve {puzzle_line(puzzle)}\n<think>"
  numbers = " ".join(map(str, puzzle.numbers))
  if isinstance(prompt_format, Templates):
    # As a NumPy array, as the data of the published starting model.
    padded = str(np.array(puzzle.numbers))[1:-1]
    return prompt_format.fill(SOLVE, NUMBERS=padded, TARGET=puzzle.target)
  return _FULL.format(
    request=f"Here are some numbers: [{numbers}]. Combine all of them, each "
    f"exactly once, to an expression whose value is {puzzle.target}. You may "
    "add, subtract, multiply, divide (+ - * /) and use brackets. Give the "
    "expression alone as the answer, such as <answer>(1 + 2) / 3</answer>."
  )


def propose_prompt(
  references: Sequence[Puzzle], prompt_format: PromptFormat
) -> str:
  """Returns a prompt that asks for a new puzzle, given reference puzzles."""
  lines = "\n".join(map(puzzle_line, references))
  if isinstance(prompt_format, Templates):
    return prompt_format.fill(PROPOSE, REFERENCES=lines)
  if prompt_format == "compact":
    return f"propose\n{lines}\n<think>"
  if prompt_format == "few_shot":
    return (
      "Number puzzles. Each line has three or four numbers in brackets, which "
      f"can be combined to the number behind them.\n{lines}\n"
    )
  return _FULL.format(
    request="Invent a number puzzle: three or four whole numbers from 1 to 99 "
    "and a target from 10 to 100 that can be reached by adding, subtracting, "
    "multiplying and dividing them, each used exactly once. Make it neither "
    "trivial nor hopeless, and different from these:\n"
    f"{lines}\nAnswer with one such line, as <answer>[8 3 5] 19</answer>."
  )


def format_response(thinking: str, answer: str) -> str:
  """Formats a response to a prompt that ends inside the thinking."""
  return f"{thinking}</think>\n<answer>{answer}</answer>"


def parse_proposal(text: str, prompt_format: str) -> Puzzle | None:
  """Returns the puzzle of a response, or None if there is none.

  Reads the last answer, or for `few_shot` the first line. Commas may separate
  the numbers, and text without digits may precede the target.
  """
  if prompt_format == "few_shot":
    answer = text.strip().partition("\n")[0]
  else:
    answer = answer_tags.last_answer(text) or ""
  match = _PUZZLE.search(answer)
  if match is None:
    return None
  numbers = tuple(map(int, re.split(r"[,\s]+", match.group(1))))
  return Puzzle(numbers, int(match.group(2)))
