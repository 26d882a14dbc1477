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

from azr_jax.tasks.countdown import difficulty, generator
from azr_jax.tasks.countdown.puzzle import Puzzle, from_record


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
  builder = CountdownPuzzles(
    seed=seed, train=train, test=test, data_dir=data_dir
  )
  builder.download_and_prepare()
  records = list(builder.as_data_source(split=split))
  scores = np.array([record["difficulty"] for record in records], np.float32)
  return [from_record(record) for record in records], scores


def read(path: pathlib.Path) -> tuple[list[Puzzle], np.ndarray]:
  """Reads puzzles in the public layout; unsolvable ones are left out.

  Args:
    path: a file of JSON lines, one JSON array, or parquet.

  Returns:
    The puzzles, and the difficulty of each, float32.

  Raises:
    ValueError: a record is no puzzle, or none can be solved.
  """
  puzzles = [from_record(record) for record in _records(path)]
  scores = difficulty.score_puzzles(puzzles)
  kept = np.flatnonzero(~np.isnan(scores)).tolist()
  if not kept:
    raise ValueError(f"{path}: expected at least one puzzle with a solution")
  return [puzzles[i] for i in kept], scores[kept].astype(np.float32)


def _records(path: pathlib.Path) -> Sequence[dict[str, Any]]:
  if path.suffix == ".parquet":
    try:
      from pyarrow import parquet
    except ImportError:
      raise ValueError(
        f"{path}: reading parquet needs `pip install pyarrow`, or the same "
        "records as JSON lines"
      ) from None
    return parquet.read_table(path, columns=["nums", "target"]).to_pylist()
  text = path.read_text(encoding="utf-8")
  try:
    if text.lstrip().startswith("["):
      return json.loads(text)
    return [json.loads(line) for line in text.splitlines() if line.strip()]
  except ValueError as error:
    raise ValueError(f"{path}: {error}; expected JSON records") from None


def write(path: pathlib.Path, puzzles: Sequence[Puzzle]) -> None:
  """Writes puzzles as JSON lines in the public layout."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with path.open("w", encoding="utf-8") as file:
    for puzzle in puzzles:
      record = {"nums": list(puzzle.numbers), "target": puzzle.target}
      file.write(json.dumps(record) + "\n")
