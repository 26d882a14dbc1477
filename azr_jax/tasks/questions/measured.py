"""How questions were answered: what improvement potential is measured by."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from azr_jax.curricula.improvement_potential import Measured
from azr_jax.tasks.questions.question import Question


def write(
  path: pathlib.Path,
  questions: Sequence[Question],
  measured: Sequence[Measured],
) -> None:
  """Writes the counts of questions, a line of JSON each."""
  lines = [
    json.dumps({"id": question.id, **dataclasses.asdict(one)}) + "\n"
    for question, one in zip(questions, measured, strict=True)
  ]
  path.write_text("".join(lines))


def read(path: pathlib.Path) -> dict[str, Measured]:
  """Reads what `write` wrote, by id.

  Raises:
    ValueError: there is no such file, or it is something else.
  """
  if not path.is_file():
    raise ValueError(
      f"{path}: there is no such file; expected one of azr_jax.potential"
    )
  try:
    rows = map(json.loads, path.read_text().splitlines())
    return {row["id"]: Measured(row["right"], row["asked"]) for row in rows}
  except (ValueError, KeyError, TypeError) as error:
    raise ValueError(
      f"{path}: {error}; expected a file of azr_jax.potential"
    ) from None


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
