"""Reads and writes files of pass rates.

`azr_jax.potential` writes them. Curricula compute improvement potential from
them.
"""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from azr_jax.config import user_files
from azr_jax.curricula.improvement_potential import PassRate
from azr_jax.tasks.questions.question import Question


def write(
  path: pathlib.Path,
  questions: Sequence[Question],
  pass_rates: Sequence[PassRate],
) -> None:
  """Writes the pass rate of each question as a line of JSON."""
  lines = [
    json.dumps({"id": question.id, **dataclasses.asdict(rate)}) + "\n"
    for question, rate in zip(questions, pass_rates, strict=True)
  ]
  path.write_text("".join(lines))


def read(path: pathlib.Path) -> dict[str, PassRate]:
  """Reads a file of pass rates and returns them by question id.

  Raises:
    ValueError: the file does not exist or is malformed.
  """
  if not path.is_file():
    raise ValueError(
      f"{path}: there is no such file; expected one of azr_jax.potential"
    )
  with user_files.reading(path, "a file of azr_jax.potential"):
    lines = path.read_text(user_files.ENCODING).splitlines()
    return {
      row["id"]: PassRate(row["num_correct"], row["num_samples"])
      for row in map(user_files.parse_json, lines)
    }


def sandbox_of(path: pathlib.Path) -> dict[str, Any]:
  """Returns the config section `executor` of the run that wrote a file.

  Returns an empty section if there is no config next to the file.

  Raises:
    ValueError: the config is damaged.
  """
  config = path.parent / "config.json"
  if not config.is_file():
    return {}
  try:
    return json.loads(config.read_text())["config"].get("executor", {})
  except (ValueError, KeyError, AttributeError, TypeError) as error:
    raise ValueError(
      f"{config}: {error!r}; expected the config of azr_jax.potential"
    ) from None


def read_for(
  path: pathlib.Path, questions: Sequence[Question]
) -> list[PassRate]:
  """Reads the pass rates of questions and returns them in the same order.

  Raises:
    ValueError: the file does not exist or lacks one of the questions.
  """
  pass_rates = read(path)
  missing = [q.id for q in questions if q.id not in pass_rates]
  if missing:
    raise ValueError(
      f"{path}: {len(missing)} of {len(questions)} questions are missing, such "
      f"as {missing[0]}; expected the pass rates of all of them"
    )
  return [pass_rates[q.id] for q in questions]
