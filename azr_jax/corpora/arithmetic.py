"""Arithmetic conversations for the base model of a tiny run.

The responses mix solution styles. The base model learns to solve the problems;
reinforcement learning has to discover which style is rewarded.

| solution style | response |
| --- | --- |
| `chain_of_thought` | term by term, then the result in a box |
| `guessed` | only the result in a box |
| `bare` | term by term, then the result outside of a box |
| `circular` | half of the terms, then one step back and forth, no result |
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from azr_jax.config.settings import Settings, setting
from azr_jax.models import tokenizer_training
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.tasks.mathematics import prompts, sources
from azr_jax.tasks.mathematics.problem import Problem

SOLUTION_STYLES = ("chain_of_thought", "guessed", "bare", "circular")
_CIRCULAR = 240  # Length of the circular part in characters.
VOCAB_SIZE = 320  # The maximum, of which 256 are bytes.
_TASK = "State the final answer to the following arithmetic problem: "
_SYMBOLS = (
  _TASK,
  " =\n<think>",
  "</think>\n<answer>\\boxed{",
  "}</answer>",
  "</think>\n<answer>",
  "</answer>",
  " + ",
  " - ",
)


@dataclasses.dataclass(frozen=True)
class ArithmeticSettings(Settings):
  """Section `arithmetic` of supervised training: the mix of conversations."""

  seed: int = setting(0, "seed for all random draws", minimum=0, expert=True)
  count: int = setting(60_000, "conversations", minimum=1)
  data: str = setting(
    "gym:chain_sum(min_terms=3, max_terms=4, max_digits=2)",
    "source of sums, see tasks/mathematics/sources.py",
    required=True,
  )
  style_weights: tuple[float, ...] = setting(
    (0.3, 0.4, 0.3, 0.0),
    "weights of chain-of-thought, guessed, bare and circular solutions",
    accepts=(
      lambda v: len(v) == 4 and min(v) >= 0 and sum(v) > 0,
      f"a tuple of weights for {SOLUTION_STYLES}",
    ),
  )


def conversations(
  *, seed: int, count: int, data: str, style_weights: Sequence[float]
) -> Iterator[tuple[str, str]]:
  """Yields (prompt, response) for at most `count` problems.

  `ArithmeticSettings` describes the values.
  """
  rng = streams.generator(seed, Purpose.ARITHMETIC_CORPUS)
  weights = np.array(style_weights) / sum(style_weights)
  for problem in sources.read(data, count, seed):
    style = SOLUTION_STYLES[rng.choice(len(SOLUTION_STYLES), p=weights)]
    yield (
      prompts.solve_prompt(problem.question, "compact"),
      write_response(problem, style),
    )


def write_response(problem: Problem, solution_style: str) -> str:
  """Returns a response with the correct result; `circular` never reaches one.

  Args:
    problem: a sum of integers.
    solution_style: one of `SOLUTION_STYLES`.

  Raises:
    ValueError: the question is not a sum, or its answer is incorrect.
  """
  if solution_style == "guessed":
    return prompts.format_response("", problem.answer)
  steps, total = _add_up(problem.question)
  if str(total) != problem.answer:
    raise ValueError(f"{problem}: expected a sum and its value")
  if solution_style == "circular":
    known = steps.split(" ")[: (1 + steps.count(" ")) // 2 or 1]
    there_and_back = f" {_undone(known[-1])} {known[-1]}"
    rounds = -(-_CIRCULAR // len(there_and_back))
    return " ".join(known) + there_and_back * rounds
  if solution_style == "bare":
    return f"{steps}</think>\n<answer>{total}</answer>"
  return prompts.format_response(steps, str(total))


def _add_up(question: str) -> tuple[str, int]:
  """Returns the running totals, as `12+7=19 19-4=15`, and the result."""
  match = re.search(r"(-?\d+(?: [+-] -?\d+)+) =", question)
  if match is None:
    raise ValueError(f"{question!r:.80}: expected a sum")
  first, *rest = re.findall(r"(?:^|[+-] )-?\d+", match[1])
  total, steps = int(first), []
  for term in rest:
    sign, number = term.split(" ")
    result = total + int(number) if sign == "+" else total - int(number)
    steps.append(f"{total}{sign}{number}={result}")
    total = result
  return " ".join(steps), total


def _undone(step: str) -> str:
  """Returns the step that undoes another one: `19-7=12` for `12+7=19`."""
  match = re.fullmatch(r"(-?\d+)([+-])(-?\d+)=(-?\d+)", step)
  assert match is not None, step
  before, sign, number, after = match.groups()
  return f"{after}{'-' if sign == '+' else '+'}{number}={before}"


def train_tokenizer(texts: Iterable[str], folder: pathlib.Path) -> pathlib.Path:
  """Trains the tokenizer of a tiny model and returns the path of its file."""
  return tokenizer_training.train(texts, _SYMBOLS, VOCAB_SIZE, folder)
