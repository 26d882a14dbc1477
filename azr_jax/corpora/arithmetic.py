"""Conversations about sums, for the base model of a tiny run.

A base model that knows how, but not when: the replies have mixed manners, and
reinforcement learning has to find out which of them pay.

| manner | reply |
| --- | --- |
| `worked` | term by term, then the result in a box |
| `guessed` | the result in a box, at once |
| `bare` | term by term, but the result stands outside of a box |
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Iterator

import numpy as np

from azr_jax.models import tokenizer_training
from azr_jax.tasks.mathematics import prompts, sources
from azr_jax.tasks.mathematics.problem import Problem

MANNERS = ("worked", "guessed", "bare")
VOCAB_SIZE = 320  # At most; bytes need 256 of it.
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
class CorpusSettings:
  """The mix of the conversations.

  Attributes:
    seed: root of every random draw.
    count: conversations.
    data: sums, as `sources.read` reads them.
    manner_shares: weight of each of `MANNERS`.
  """

  seed: int
  count: int
  data: str
  manner_shares: tuple[float, ...]


def conversations(settings: CorpusSettings) -> Iterator[tuple[str, str]]:
  """Yields pairs of prompt and reply, fewer if there are fewer problems."""
  rng = np.random.default_rng((settings.seed, 1))
  shares = np.array(settings.manner_shares) / sum(settings.manner_shares)
  for problem in sources.read(settings.data, settings.count, settings.seed):
    manner = MANNERS[rng.choice(len(MANNERS), p=shares)]
    yield (
      prompts.solve_prompt(problem.question, "compact"),
      write(problem, manner),
    )


def write(problem: Problem, manner: str) -> str:
  """A right reply in one of `MANNERS`.

  Raises:
    ValueError: the question is no sum.
  """
  if manner == "guessed":
    return prompts.reply("", problem.answer)
  steps, total = _steps(problem.question)
  if str(total) != problem.answer:
    raise ValueError(f"{problem}: expected a sum and its value")
  if manner == "bare":
    return f"{steps}</think>\n<answer>{total}</answer>"
  return prompts.reply(steps, str(total))


def _steps(question: str) -> tuple[str, int]:
  """Running totals, as `12+7=19 19-4=15`, and the last of them."""
  found = re.search(r"(-?\d+(?: [+-] -?\d+)+) =", question)
  if found is None:
    raise ValueError(f"{question!r:.80}: expected a sum")
  first, *rest = re.findall(r"(?:^|[+-] )-?\d+", found[1])
  total, words = int(first), []
  for term in rest:
    sign, number = term.split(" ")
    result = total + int(number) if sign == "+" else total - int(number)
    words.append(f"{total}{sign}{number}={result}")
    total = result
  return " ".join(words), total


def train_tokenizer(texts: Iterable[str], folder: pathlib.Path) -> pathlib.Path:
  """Trains the tokenizer of a tiny model; returns the model file's path."""
  return tokenizer_training.train(texts, _SYMBOLS, VOCAB_SIZE, folder)
