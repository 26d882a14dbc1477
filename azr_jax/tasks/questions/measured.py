"""Files with the measured pass rates of questions.

Improvement potential is computed from them.
"""

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
  """Writes the counts of each question as a line of JSON."""
  lines = [
    json.dumps({"id": question.id, **dataclasses.asdict(counts)}) + "\n"
    for question, counts in zip(questions, measured, strict=True)
  ]
  path.write_text("".join(lines))


def read(path: pathlib.Path) -> dict[str, Measured]:
  """Reads what `write` wrote and returns it by question id.

  Raises:
    ValueError: the file does not exist or has another layout.
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
  """Returns the counts of each of the questions, in order.

  Raises:
    ValueError: the file does not exist, or it lacks one of the questions.
  """
  measured = read(path)
  missing = [q.id for q in questions if q.id not in measured]
  if missing:
    raise ValueError(
      f"{path}: {len(missing)} of {len(questions)} questions are missing, such "
      f"as {missing[0]}; expected a measurement of all of them"
    )
  return [measured[q.id] for q in questions]
