"""How questions were answered: what improvement potential is measured by."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from azr_jax.curricula.potential import Measured
from azr_jax.tasks.questions.question import Question


def append(path: pathlib.Path, question: Question, measured: Measured) -> None:
  """Adds a question's counts to a file, a line of JSON."""
  line = {"id": question.id, **dataclasses.asdict(measured)}
  with path.open("a") as file:
    file.write(json.dumps(line) + "\n")


def read(path: pathlib.Path) -> dict[str, Measured]:
  """Reads what `append` wrote, by id; a line that was cut off is left out.

  Raises:
    ValueError: there is no such file.
  """
  if not path.is_file():
    raise ValueError(f"{path}: expected a file of azr_jax.potential")
  found = {}
  for line in path.read_text().splitlines():
    try:
      row = json.loads(line)
    except ValueError:
      continue
    found[row["id"]] = Measured(row["right"], row["asked"])
  return found


def of_all(path: pathlib.Path, questions: Sequence[Question]) -> list[Measured]:
  """The counts of each of the questions.

  Raises:
    ValueError: the file is missing, or one of the questions in it.
  """
  found = read(path)
  missing = [q.id for q in questions if q.id not in found]
  if missing:
    raise ValueError(
      f"{path}: {len(missing)} of {len(questions)} questions are missing, such "
      f"as {missing[0]}; expected all to have been measured"
    )
  return [found[q.id] for q in questions]
