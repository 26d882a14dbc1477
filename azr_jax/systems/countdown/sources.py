"""Reads or generates Countdown puzzles and builds the curriculum over them."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from azr_jax.config import named, user_files
from azr_jax.curricula import adaptive, bandit, mixed, mixture, replay
from azr_jax.curricula import curriculum as curriculum_lib
from azr_jax.curricula.curriculum import Buckets, Curriculum
from azr_jax.evals import record_files
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
  settings: CountdownSettings, steps: int, say: Callable[[str], None]
) -> Sources:
  """Returns the puzzles, read or generated, and their curriculum.

  Args:
    steps: training steps of the run, for the static schedule.
    say: prints how many puzzles of a file are skipped.

  Raises:
    ValueError: no puzzle has one of the sizes, or a file has only puzzles of
      the test split.
  """
  puzzles, scores = _puzzles(settings, say)
  if settings.difficulty_records:
    puzzles, scores = _by_pass_rate(puzzles, settings.difficulty_records)
  of_size = [
    i for i, p in enumerate(puzzles) if len(p.numbers) in settings.sizes
  ]
  if not of_size:
    raise ValueError(
      f"config.countdown.sizes={settings.sizes}: expected sizes that some "
      "puzzles have"
    )
  puzzles, scores = [puzzles[i] for i in of_size], scores[of_size]
  names = difficulty.BUCKETS + ((PROPOSED,) if settings.proposals else ())
  buckets = _bucketed(names, scores, settings.bucket_limits)
  curriculum = _curriculum(settings, buckets, steps)
  sources = [puzzles]
  if settings.mix.puzzles:
    second, second_scores = _training_puzzles(settings.mix.puzzles, say)
    mixed_buckets = _bucketed(difficulty.BUCKETS, second_scores, ())
    weights = mixture.proportional(mixed_buckets)
    if settings.mix.bucket_weights:
      weights = mixture.constant(settings.mix.bucket_weights)
    sources.append(second)
    curriculum = mixed.Mixed(
      curriculum, mixture.Mixture(mixed_buckets, weights), settings.mix.fraction
    )
  return Sources(sources, buckets, curriculum)


def _curriculum(
  settings: CountdownSettings, buckets: Buckets, steps: int
) -> Curriculum:
  """Returns the curriculum over the first source.

  Raises:
    ValueError: all `bucket_weights` are on empty buckets, or MODULE:NAME does
      not make a curriculum.
  """
  curriculum: Curriculum
  if settings.curriculum == "adaptive":
    curriculum = adaptive.Adaptive(buckets, **vars(settings.adaptive))
  elif settings.curriculum == "bandit":
    curriculum = bandit.Bandit(buckets, **vars(settings.bandit))
  elif settings.curriculum == "static":
    curriculum = mixture.Mixture(buckets, mixture.static(steps))
  elif named.is_spec(settings.curriculum):
    curriculum = curriculum_lib.make(settings.curriculum, buckets)
  else:
    weights = mixture.proportional(buckets)
    if settings.bucket_weights:
      weights = mixture.constant(settings.bucket_weights)
      if not (weights(1) * buckets.filled()).any():
        raise ValueError(
          f"config.countdown.bucket_weights={settings.bucket_weights}: "
          "expected a positive weight for a bucket with puzzles"
        )
    curriculum = mixture.Mixture(buckets, weights)
  if settings.replay.fraction:
    curriculum = replay.Replay(curriculum, **vars(settings.replay))
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
  settings: CountdownSettings, say: Callable[[str], None]
) -> tuple[list[Puzzle], Float[np.ndarray, " puzzles"]]:
  """Returns the puzzles of source 0, with the difficulty of each."""
  if settings.puzzles:
    return _training_puzzles(settings.puzzles, say)
  # tensorflow-datasets takes a quarter of a second to import.
  from azr_jax.tasks.countdown import dataset

  return dataset.load(
    seed=settings.data_seed,
    train=settings.count,
    test=0,
    data_dir=pathlib.Path(settings.data_dir).expanduser(),
    split="train",
  )


def _by_pass_rate(
  puzzles: Sequence[Puzzle], path: str
) -> tuple[list[Puzzle], Float[np.ndarray, " puzzles"]]:
  """Returns the puzzles with records, and 1 - p of each (section 3.1, d_SFT).

  Args:
    puzzles: the training puzzles.
    path: records of the benchmark `countdown`.

  Raises:
    ValueError: the file has no records, or none of these puzzles.
  """
  rates: dict[Puzzle, float] = {}
  for record in record_files.read(pathlib.Path(path).expanduser()):
    with user_files.reading(path, "records of the benchmark countdown"):
      asked = record["reference"]
      puzzle = Puzzle(tuple(asked["nums"]), asked["target"])
      rates[puzzle] = sum(record["correct"]) / len(record["correct"])
  known = [puzzle for puzzle in puzzles if puzzle in rates]
  if not known:
    raise ValueError(
      f"{path}: expected records of puzzles that this run trains on "
      "(config.countdown.difficulty_records)"
    )
  return known, np.array([1.0 - rates[puzzle] for puzzle in known])


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
