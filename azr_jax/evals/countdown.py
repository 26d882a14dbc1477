"""`countdown`: several answers to each of some held-out puzzles.

Paper: seed 003, section 4.1: 50 puzzles x 16 answers; an answer counts if the
strict verifier gives 1.0. The same puzzles for everyone: the first of the test
split, or those of a file. `--limit` says how many.
"""

import pathlib
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np

from azr_jax.evals.benchmark import Benchmark, Grade, Item
from azr_jax.executor import Executor, futures
from azr_jax.grading import answer_tags
from azr_jax.grading import countdown as verifier
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.tasks.countdown import dataset, difficulty, generator, prompts

PUZZLES = 50  # Of the paper.
_MOST_PUZZLES = 1000  # As many as `--limit` can ask for.
_SEED = 0


def read(data: str) -> list[Item]:
  """Items of a file in the public layout, or of the test split."""
  if data:
    puzzles, scores = dataset.read(pathlib.Path(data).expanduser())
  else:
    stream = generator.generate(_SEED, _MOST_PUZZLES, test=True)
    puzzles, scores = map(list, zip(*stream, strict=True))
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


def _puzzle(item: Item) -> Puzzle:
  return Puzzle(tuple(item.reference["nums"]), item.reference["target"])


def grade(executor: Executor, item: Item, reply: str) -> "Future[Grade]":
  """Verifies a reply; no program runs."""
  del executor
  verdict = verifier.verify(_puzzle(item), reply)
  return futures.done(Grade(verdict.right, verdict.reason))


def summarize(
  items: Sequence[Item],
  correct: np.ndarray,
  replies: Sequence[Sequence[str]],
) -> dict[str, float]:
  """pass@1 by difficulty in thirds, and answer tags of a reply."""
  scores = np.array([item.reference["difficulty"] for item in items])
  buckets = difficulty.buckets(scores, difficulty.thresholds(scores))
  found = {
    f"pass@1/{name}": float(correct[buckets == index].mean())
    for index, name in enumerate(difficulty.BUCKETS)
    if np.any(buckets == index)
  }
  blocks = [answer_tags.answer_blocks(text) for own in replies for text in own]
  return found | {"answer_blocks": float(np.mean(blocks))}


BENCHMARKS = (
  Benchmark(
    "countdown",
    "",
    read,
    "words",
    grade,
    prompt=lambda item, style, tokenizer: prompts.solve_prompt(
      _puzzle(item), style
    ),
    summarize=summarize,
    reads_by_name=True,
    default_limit=PUZZLES,
  ),
)
