"""Countdown conversations for a supervised warm start.

Most conversations solve a puzzle of the training split, in the solution styles
of `countdown_solutions.py`. The others propose a puzzle after solving it.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from azr_jax.config.settings import Settings, setting
from azr_jax.corpora import countdown_solutions
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.models import tokenizer_training
from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose
from azr_jax.tasks.countdown import generator, prompts, solver

# Number of puzzles per call of the solver.
_SOLVER_BATCH = 128
# Every digit is a token. With a token per number, a tiny model takes several
# times as long to learn to add.
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
VOCAB_SIZE = 320  # The maximum, of which 256 are bytes.


@dataclasses.dataclass(frozen=True)
class CountdownCorpusSettings(Settings):
  """Section `countdown` of supervised training: the mix of conversations."""

  seed: int = setting(0, "seed for all random draws", minimum=0, expert=True)
  count: int = setting(120_000, "conversations", minimum=1)
  prompt_format: str = setting(
    "compact", "prompt format", choices=prompts.PROMPT_FORMATS
  )
  sizes: tuple[int, ...] = setting(
    generator.COUNTS,
    "how many numbers a puzzle has",
    subset_of=generator.COUNTS,
    required=True,
  )
  style_weights: tuple[float, ...] = setting(
    (0.35, 0.15, 0.1, 0.4, 0.0, 0.0),
    "weights of direct, search, backward, guess, answer_only and value",
    accepts=(
      lambda v: len(v) == 6 and min(v) >= 0 and sum(v) > 0,
      f"a tuple of weights for {countdown_solutions.SOLUTION_STYLES}",
    ),
  )
  incorrect_try_prob: float = setting(
    0.25,
    "probability of an incorrect try before a correct step",
    minimum=0,
    below=1,
    expert=True,
  )
  propose_prob: float = setting(
    0.12,
    "probability that a conversation proposes a puzzle",
    minimum=0,
    below=1,
    expert=True,
  )
  references: int = setting(
    2, "number of puzzles in a proposer's prompt", minimum=0
  )


def conversations(
  *,
  seed: int,
  count: int,
  prompt_format: str,
  sizes: Sequence[int],
  style_weights: Sequence[float],
  incorrect_try_prob: float,
  propose_prob: float,
  references: int,
) -> Iterator[tuple[str, str]]:
  """Yields (prompt, response) for `count` conversations.

  `CountdownCorpusSettings` describes the values.
  """
  rng = streams.generator(seed, Purpose.COUNTDOWN_CORPUS)
  weights = np.array(style_weights) / sum(style_weights)
  recent: list[Puzzle] = []
  solved = _solved_puzzles(seed, sizes, rng)
  for _ in range(count):
    puzzle, term = next(solved)
    if len(recent) >= references and (rng.random() < propose_prob):
      yield (
        prompts.propose_prompt(recent[-references:], prompt_format),
        prompts.format_response(
          countdown_solutions.format_solution(puzzle, term, "direct", 0.0, rng),
          prompts.puzzle_line(puzzle),
        ),
      )
    else:
      style_index = rng.choice(len(weights), p=weights)
      solution_style = countdown_solutions.SOLUTION_STYLES[style_index]
      yield (
        prompts.solve_prompt(puzzle, prompt_format),
        prompts.format_response(
          countdown_solutions.format_solution(
            puzzle, term, solution_style, incorrect_try_prob, rng
          ),
          countdown_solutions.format_answer(term, solution_style),
        ),
      )
    recent = [*recent, puzzle][-max(references, 1) :]


def _solved_puzzles(
  seed: int, sizes: Sequence[int], rng: np.random.Generator
) -> Iterator[tuple[Puzzle, solver.Term]]:
  """Yields solved puzzles of the training split with these sizes, endlessly."""
  stream = (puzzle for puzzle, _ in generator.generate(seed, 10**9))
  while True:
    batch = list(itertools.islice(stream, _SOLVER_BATCH))
    terms: dict[Puzzle, solver.Term] = {}
    for size in sizes:
      puzzles = [puzzle for puzzle in batch if len(puzzle.numbers) == size]
      all_solutions = solver.natural_solutions(
        np.array([puzzle.numbers for puzzle in puzzles]),
        np.array([puzzle.target for puzzle in puzzles]),
      )
      for puzzle, solutions in zip(puzzles, all_solutions, strict=True):
        term = countdown_solutions.choose_solution(puzzle, solutions, rng)
        if term is not None:
          terms[puzzle] = term
    yield from ((puzzle, terms[puzzle]) for puzzle in batch if puzzle in terms)


def train_tokenizer(texts: Iterable[str], folder: pathlib.Path) -> pathlib.Path:
  """Trains the tokenizer of a tiny model and returns the path of its file."""
  return tokenizer_training.train(texts, _SYMBOLS, VOCAB_SIZE, folder)
