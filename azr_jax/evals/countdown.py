"""`countdown`: held-out Countdown puzzles.

Paper: Countdown, section 4.1: 50 puzzles x 16 responses; a response is correct
if the strict verifier gives 1.0. Every model gets the same puzzles: the first
`--limit` puzzles of the test split, or of a file given by `--data`. With
`--data=numbers:3`, only test puzzles of three numbers are used.
"""

import functools
import pathlib
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
from jaxtyping import Bool

from azr_jax.evals.benchmark import Benchmark, Item, ItemOutcome
from azr_jax.executor import Executor, futures
from azr_jax.grading import answer_tags
from azr_jax.grading import countdown as verifier
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import difficulty, generator, prompts, puzzle_files

PUZZLES = 50  # as in the paper
_MAX_PUZZLES = 1000  # number of test puzzles, so the largest useful `--limit`
_SEED = 0
_NUMBERS = "numbers:"


def read(data: str) -> list[Item]:
  """Reads items from a file in the public layout, or from the test split.

  Args:
    data: a file; `numbers:3` or `numbers:4` for test puzzles of this size; ""
      for test puzzles of both sizes.

  Raises:
    ValueError: the test split has no puzzles of this size.
  """
  if data and not data.startswith(_NUMBERS):
    puzzles, scores = puzzle_files.read(pathlib.Path(data).expanduser())
  else:
    sizes = _sizes(data)
    of_size = [pair for pair in _test_split() if len(pair[0].numbers) in sizes]
    puzzles, scores = map(list, zip(*of_size, strict=True))
  return [
    Item(
      str(index),
      prompts.puzzle_line(puzzle),
      {
        "nums": list(puzzle.numbers),
        "target": puzzle.target,
        "difficulty": float(score),
      },
    )
    for index, (puzzle, score) in enumerate(zip(puzzles, scores, strict=True))
  ]


@functools.cache  # Generating the split solves thousands of puzzles (seconds).
def _test_split() -> tuple[tuple[Puzzle, float], ...]:
  """Returns the puzzles of the test split and their difficulties."""
  return tuple(generator.generate(_SEED, _MAX_PUZZLES, test=True))


def _sizes(data: str) -> tuple[int, ...]:
  """Returns the allowed sizes of test puzzles."""
  sizes = {f"{_NUMBERS}{size}": (size,) for size in generator.COUNTS}
  if data and data not in sizes:
    raise ValueError(f"--data={data}: expected {' or '.join(sizes)}, or a file")
  return sizes.get(data, generator.COUNTS)


def _puzzle(item: Item) -> Puzzle:
  return Puzzle(tuple(item.reference["nums"]), item.reference["target"])


def grade(
  executor: Executor, item: Item, response: str
) -> "Future[ItemOutcome]":
  """Grades a response with the strict verifier, which needs no executor."""
  del executor
  score = verifier.verify(_puzzle(item), response)
  return futures.done(ItemOutcome(score.correct, score.reason))


def summarize(
  items: Sequence[Item],
  correct: Bool[np.ndarray, "items samples"],
  responses: Sequence[Sequence[str]],
) -> dict[str, float]:
  """Returns pass@1 by thirds of difficulty, and answer blocks per response.

  Args:
    correct: whether each response is correct.
    responses: the responses to each item.
  """
  scores = np.array([item.reference["difficulty"] for item in items])
  buckets = difficulty.buckets(scores, difficulty.thresholds(scores))
  metrics = {
    f"pass@1/{name}": float(correct[buckets == index].mean())
    for index, name in enumerate(difficulty.BUCKETS)
    if np.any(buckets == index)
  }
  blocks = [
    answer_tags.answer_blocks(text) for texts in responses for text in texts
  ]
  return metrics | {"answer_blocks": float(np.mean(blocks))}


BENCHMARKS = (
  Benchmark(
    "countdown",
    "",
    read,
    "words",
    grade,
    prompt=lambda item, prompt_format, chat: prompts.solve_prompt(
      _puzzle(item), prompt_format
    ),
    prompt_files={prompts.SOLVE: prompts.FILES[prompts.SOLVE]},
    summarize=summarize,
    opens_data=True,
    default_limit=PUZZLES,
  ),
)
