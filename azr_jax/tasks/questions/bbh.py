"""Reads the public files of BIG-Bench Hard as questions."""

import pathlib

from azr_jax.config import user_files
from azr_jax.executor.child.canonical import canonical
from azr_jax.tasks.questions.question import Question

PREFIX = "bbh/"


def read(path: pathlib.Path) -> list[Question]:
  """Reads a task's file, or all files of a folder.

  Raises:
    ValueError: a file is missing or malformed, or the folder has no files.
  """
  files = sorted(path.glob("*.json")) if path.is_dir() else [path]
  questions = []
  for file in files:
    with user_files.reading(file, "a BIG-Bench Hard file"):
      examples = user_files.read_json(file)["examples"]
      questions += [
        Question(
          f"{PREFIX}{file.stem}/{index}",
          PREFIX + file.stem,
          example["input"],
          canonical(example["target"]),
        )
        for index, example in enumerate(examples)
      ]
  if not questions:
    raise ValueError(f"{path}: expected a folder of BIG-Bench Hard files")
  return questions
