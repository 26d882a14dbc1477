"""Labelled puzzles as a tensorflow-datasets array_record data source.

  python -m azr_jax.tasks.countdown --count=100000 --out=DIR

Built once per settings, read by random access, without TensorFlow. Training and
test split share no puzzle, nor another order of its numbers. Also reads the
public layout, records of `nums` and `target` in JSON lines, JSON or parquet.
"""

import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from azr_jax.grading.countdown_puzzle import Puzzle, from_record
from azr_jax.tasks import records
from azr_jax.tasks.countdown import difficulty, generator


class CountdownPuzzles(tfds.core.GeneratorBasedBuilder):
  """Puzzles with the fields nums, target and difficulty."""

  VERSION = tfds.core.Version("1.0.0")

  def __init__(
    self, *, seed: int, train: int, test: int, data_dir: pathlib.Path
  ):
    """Makes the builder of `train` and `test` puzzles."""
    self._seed = seed
    self._counts = {"train": train, "test": test}
    super().__init__(
      data_dir=str(data_dir / f"seed{seed}_train{train}_test{test}"),
      file_format="array_record",
    )

  def _info(self) -> tfds.core.DatasetInfo:
    return self.dataset_info_from_configs(
      features=tfds.features.FeaturesDict(
        {
          "nums": tfds.features.Sequence(np.int32),
          "target": np.int32,
          "difficulty": np.float32,
        }
      )
    )

  def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
    del dl_manager
    return {
      split: self._generate_examples(split)
      for split, count in self._counts.items()
      if count
    }

  def _generate_examples(
    self, split: str
  ) -> Iterator[tuple[int, dict[str, Any]]]:
    stream = generator.generate(
      self._seed, self._counts[split], test=split == "test"
    )
    for index, (puzzle, score) in enumerate(stream):
      yield (
        index,
        {
          "nums": puzzle.numbers,
          "target": puzzle.target,
          "difficulty": score,
        },
      )


def load(
  *, seed: int, train: int, test: int, data_dir: pathlib.Path, split: str
) -> tuple[list[Puzzle], np.ndarray]:
  """Builds the puzzles if the folder lacks them; returns a split.

  Returns:
    The puzzles, and the difficulty of each, float32.
  """
  arguments: dict[str, Any] = dict(
    seed=seed, train=train, test=test, data_dir=data_dir
  )
  builder = CountdownPuzzles(**arguments)
  try:
    builder.download_and_prepare()
  except FileExistsError:  # Another run has just written the same.
    builder = CountdownPuzzles(**arguments)
  rows = list(builder.as_data_source(split=split))
  scores = np.array([row["difficulty"] for row in rows], np.float32)
  return [from_record(row) for row in rows], scores


def read(path: pathlib.Path) -> tuple[list[Puzzle], np.ndarray]:
  """Reads puzzles in the public layout; unsolvable ones are left out.

  Args:
    path: a file as `azr_jax/tasks/records.py` reads it.

  Returns:
    The puzzles, and the difficulty of each, float32.

  Raises:
    ValueError: a record is no puzzle, or none can be solved.
  """
  puzzles = [from_record(record) for record in records.read(str(path))]
  scores = difficulty.score_puzzles(puzzles)
  kept = np.flatnonzero(~np.isnan(scores)).tolist()
  if not kept:
    raise ValueError(f"{path}: expected at least one puzzle with a solution")
  return [puzzles[i] for i in kept], scores[kept].astype(np.float32)


def write(path: pathlib.Path, puzzles: Sequence[Puzzle]) -> None:
  """Writes puzzles as JSON lines in the public layout."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with path.open("w", encoding="utf-8") as file:
    for puzzle in puzzles:
      record = {"nums": list(puzzle.numbers), "target": puzzle.target}
      file.write(json.dumps(record) + "\n")
