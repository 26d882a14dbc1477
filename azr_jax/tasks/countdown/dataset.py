"""The generated dataset of puzzles with difficulties.

  python -m azr_jax.tasks.countdown --count=100000 --out=DIR

tensorflow-datasets builds it once per settings and reads its array_record files
by random access, without TensorFlow. The training and test splits share no
puzzle, not even with reordered numbers.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from jaxtyping import Float32

from azr_jax.grading.countdown_puzzle import Puzzle, from_record
from azr_jax.tasks.countdown import generator


class CountdownPuzzles(tfds.core.GeneratorBasedBuilder):
  """The dataset builder. Records have nums, target and difficulty."""

  VERSION = tfds.core.Version("1.0.0")

  def __init__(
    self, *, seed: int, train: int, test: int, data_dir: pathlib.Path
  ):
    """Sets the number of puzzles in each split."""
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
) -> tuple[list[Puzzle], Float32[np.ndarray, " puzzles"]]:
  """Reads a split, after building the dataset if the folder lacks it.

  Args:
    seed: the seed for all random draws.
    train: the number of training puzzles.
    test: the number of test puzzles.
    data_dir: the parent of the dataset's folder.
    split: `train` or `test`.

  Returns:
    The puzzles, and their difficulties.
  """
  arguments: dict[str, Any] = dict(
    seed=seed, train=train, test=test, data_dir=data_dir
  )
  builder = CountdownPuzzles(**arguments)
  try:
    builder.download_and_prepare()
  except FileExistsError:  # Another process wrote it in the meantime.
    builder = CountdownPuzzles(**arguments)
  rows = list(builder.as_data_source(split=split))
  scores = np.array([row["difficulty"] for row in rows], np.float32)
  return [from_record(row) for row in rows], scores
