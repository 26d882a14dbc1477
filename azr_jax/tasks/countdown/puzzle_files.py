"""Reads and writes puzzles in the layout of public files.

Records have `nums` and `target`, in JSON lines, JSON or parquet.
"""

import json
import pathlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32

from azr_jax.config import user_files
from azr_jax.grading.countdown_puzzle import Puzzle, from_record
from azr_jax.tasks import records
from azr_jax.tasks.countdown import difficulty


def read(
  path: pathlib.Path,
) -> tuple[list[Puzzle], Float32[np.ndarray, " puzzles"]]:
  """Reads the solvable puzzles of a file in the public layout.

  Args:
    path: a file that `azr_jax/tasks/records.py` reads.

  Returns:
    The puzzles, and their difficulties.

  Raises:
    ValueError: a record is not a puzzle, or no puzzle is solvable.
  """
  with user_files.reading(path, "records of puzzles"):
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
