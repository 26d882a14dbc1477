"""Conversations about puzzles, for a supervised warm start.

Most solve a puzzle of the training split, in the styles of `worked.py`; the
others propose one, after making sure that it can be solved.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np

from azr_jax.corpora import countdown_solutions
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.models import tokenizer_training
from azr_jax.tasks.countdown import generator, prompts, solver

# Puzzles whose solutions are looked for together.
_TOGETHER = 128
# Numbers are written in digits, a token each: with a token for each number a
# tiny model takes several times as long to learn to add.
_SYMBOLS = (
  "solve [",
  "propose\n",
  "<think>",
  "\n<think>",
  "</think>\n<answer>",
  "</answer>",
  "<think>[",
  " [",
  "] ",
  " needs ",
  " no ",
  " yes",
)
VOCAB_SIZE = 320  # at most; bytes need 256 of it


@dataclasses.dataclass(frozen=True)
class CorpusSettings:
  """The mix of the conversations.

  Attributes:
    seed: root of every random draw.
    count: conversations.
    prompt_style: of `prompts.STYLES`.
    style_shares: weight of each of `worked.STYLES`, in their order.
    try_share: see `worked.write`.
    propose_share: share of conversations that propose.
    references: puzzles that a proposer is shown.
  """

  seed: int
  count: int
  prompt_style: str
  style_shares: tuple[float, ...]
  try_share: float
  propose_share: float
  references: int


def conversations(settings: CorpusSettings) -> Iterator[tuple[str, str]]:
  """Yields `count` pairs of prompt and reply."""
  rng = np.random.default_rng((settings.seed, 1))
  shares = np.array(settings.style_shares) / sum(settings.style_shares)
  recent: list[Puzzle] = []
  solved = _solved(settings.seed, rng)
  for _ in range(settings.count):
    puzzle, term = next(solved)
    if len(recent) >= settings.references and (
      rng.random() < settings.propose_share
    ):
      yield (
        prompts.propose_prompt(
          recent[-settings.references :], settings.prompt_style
        ),
        prompts.reply(
          countdown_solutions.write(puzzle, term, "direct", 0.0, rng),
          prompts.puzzle_line(puzzle),
        ),
      )
    else:
      style = countdown_solutions.STYLES[rng.choice(len(shares), p=shares)]
      yield (
        prompts.solve_prompt(puzzle, settings.prompt_style),
        prompts.reply(
          countdown_solutions.write(
            puzzle, term, style, settings.try_share, rng
          ),
          countdown_solutions.answer(term),
        ),
      )
    recent = [*recent, puzzle][-max(settings.references, 1) :]


def _solved(
  seed: int, rng: np.random.Generator
) -> Iterator[tuple[Puzzle, solver.Term]]:
  """Endless puzzles of the training split with a solution each."""
  stream = (puzzle for puzzle, _ in generator.generate(seed, 10**9))
  while True:
    batch = list(itertools.islice(stream, _TOGETHER))
    terms: dict[Puzzle, solver.Term] = {}
    for size in generator.COUNTS:
      own = [puzzle for puzzle in batch if len(puzzle.numbers) == size]
      found = solver.natural_paths(
        np.array([puzzle.numbers for puzzle in own]),
        np.array([puzzle.target for puzzle in own]),
      )
      for puzzle, paths in zip(own, found, strict=True):
        term = countdown_solutions.choose_path(puzzle, paths, rng)
        if term is not None:
          terms[puzzle] = term
    yield from ((puzzle, terms[puzzle]) for puzzle in batch if puzzle in terms)


def train_tokenizer(texts: Iterable[str], folder: pathlib.Path) -> pathlib.Path:
  """Trains the tokenizer of a tiny model; returns the model file's path."""
  return tokenizer_training.train(texts, _SYMBOLS, VOCAB_SIZE, folder)
