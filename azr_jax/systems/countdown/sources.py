"""Reads or generates Countdown puzzles and builds the curriculum over them."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from azr_jax.config import named
from azr_jax.curricula import adaptive, bandit, mixed, mixture, replay
from azr_jax.curricula import curriculum as curriculum_lib
from azr_jax.curricula.curriculum import Buckets, Curriculum
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.systems.countdown.settings import CountdownSettings
from azr_jax.tasks.countdown import difficulty, generator, puzzle_files

# The bucket of puzzles that the policy proposed.
PROPOSED = "proposed"


@dataclasses.dataclass(frozen=True)
class Sources:
  """The puzzles, and the curriculum that samples them.

  Attributes:
    puzzles: the puzzles of each source.
    buckets: the difficulty buckets of source 0 and of proposed puzzles.
    curriculum: samples items, each with a source and an index into it.
  """

  puzzles: list[list[Puzzle]]
  buckets: Buckets
  curriculum: Curriculum


def read(
  c: CountdownSettings, steps: int, say: Callable[[str], None]
) -> Sources:
  """Returns the puzzles, read or generated, and their curriculum.

  Args:
    steps: training steps of the run, for the static schedule.
    say: prints how many puzzles of a file are skipped.

  Raises:
    ValueError: no puzzle has one of the sizes, or a file has only puzzles of
      the test split.
  """
  puzzles, scores = _puzzles(c, say)
  of_size = [i for i, p in enumerate(puzzles) if len(p.numbers) in c.sizes]
  if not of_size:
    raise ValueError(
      f"config.countdown.sizes={c.sizes}: expected sizes that some puzzles have"
    )
  puzzles, scores = [puzzles[i] for i in of_size], scores[of_size]
  names = difficulty.BUCKETS + ((PROPOSED,) if c.proposals else ())
  buckets = _bucketed(names, scores, c.bucket_limits)
  curriculum = _curriculum(c, buckets, steps)
  sources = [puzzles]
  if c.mix.puzzles:
    second, second_scores = _training_puzzles(c.mix.puzzles, say)
    mixed_buckets = _bucketed(difficulty.BUCKETS, second_scores, ())
    weights = mixture.proportional(mixed_buckets)
    if c.mix.bucket_weights:
      weights = mixture.constant(c.mix.bucket_weights)
    sources.append(second)
    curriculum = mixed.Mixed(
      curriculum, mixture.Mixture(mixed_buckets, weights), c.mix.fraction
    )
  return Sources(sources, buckets, curriculum)


def _curriculum(
  c: CountdownSettings, buckets: Buckets, steps: int
) -> Curriculum:
  """Returns the curriculum over the first source.

  Raises:
    ValueError: all `bucket_weights` are on empty buckets, or MODULE:NAME does
      not make a curriculum.
  """
  curriculum: Curriculum
  if c.curriculum == "adaptive":
    curriculum = adaptive.Adaptive(buckets, **vars(c.adaptive))
  elif c.curriculum == "bandit":
    curriculum = bandit.Bandit(buckets, **vars(c.bandit))
  elif c.curriculum == "static":
    curriculum = mixture.Mixture(buckets, mixture.static(steps))
  elif named.is_spec(c.curriculum):
    curriculum = curriculum_lib.make(c.curriculum, buckets)
  else:
    weights = mixture.proportional(buckets)
    if c.bucket_weights:
      weights = mixture.constant(c.bucket_weights)
      if not (weights(1) * buckets.filled()).any():
        raise ValueError(
          f"config.countdown.bucket_weights={c.bucket_weights}: expected a "
          "positive weight for a bucket with puzzles"
        )
    curriculum = mixture.Mixture(buckets, weights)
  if c.replay.fraction:
    curriculum = replay.Replay(curriculum, **vars(c.replay))
  return curriculum


def _bucketed(
  names: tuple[str, ...],
  scores: Float[np.ndarray, " puzzles"],
  limits: Sequence[float],
) -> Buckets:
  """Returns buckets by difficulty, split into thirds if there are no limits."""
  low, high = limits or difficulty.thresholds(scores)
  thresholds = (low, high)
  return Buckets(names, difficulty.buckets(scores, thresholds).tolist())


def _puzzles(
  c: CountdownSettings, say: Callable[[str], None]
) -> tuple[list[Puzzle], Float[np.ndarray, " puzzles"]]:
  """Returns the puzzles of source 0, with the difficulty of each."""
  if c.puzzles:
    return _training_puzzles(c.puzzles, say)
  # tensorflow-datasets takes a quarter of a second to import.
  from azr_jax.tasks.countdown import dataset

  return dataset.load(
    seed=c.data_seed,
    train=c.count,
    test=0,
    data_dir=pathlib.Path(c.data_dir).expanduser(),
    split="train",
  )


def _training_puzzles(
  path: str, say: Callable[[str], None]
) -> tuple[list[Puzzle], Float[np.ndarray, " puzzles"]]:
  """Returns the training puzzles of a file, with the difficulty of each.

  Raises:
    ValueError: all puzzles belong to the test split.
  """
  puzzles, scores = puzzle_files.read(pathlib.Path(path).expanduser())
  kept = [i for i, p in enumerate(puzzles) if not generator.is_test(p)]
  skipped = len(puzzles) - len(kept)
  if skipped:
    say(
      f"{path}: skipping {skipped} of {len(puzzles)} puzzles, which belong to "
      "the test split"
    )
  if not kept:
    raise ValueError(f"{path}: expected puzzles outside the test split")
  return [puzzles[i] for i in kept], scores[kept]
