"""Chooses problems by their pass rate, and writes them to a file.

ORZ (arXiv 2503.24290, section 2.3) anneals on problems that were solved fewer
than 4 times of 64. Its data are problems that were solved 1 to 7 times of 8.
"""

import json
import pathlib
from collections.abc import Iterable, Sequence

from azr_jax.config import user_files
from azr_jax.run import checkpoint_reading, storage
from azr_jax.tasks import records
from azr_jax.tasks.mathematics.problem import Problem
from azr_jax.trainer import restore
from azr_jax.trainer import settings as train_settings


def of_run(run: str) -> Sequence[tuple[Problem, float]]:
  """Returns the problems that a run sampled, with their last pass rates.

  Raises:
    ValueError: the folder is not a run's, has no checkpoint, or its system
      keeps no pass rates.
  """
  folder = storage.resolve(run)
  config = restore.read_run_config(folder)
  settings = train_settings.read_train(config)
  with checkpoint_reading.open_to_read(folder) as (checkpoints, step):
    state = checkpoints.restore_system(step)
  return settings.system.pass_rates(settings.system_settings, state)


def of_records(path: str) -> list[tuple[Problem, float]]:
  """Returns the problems of a benchmark's records, with their pass rates.

  Raises:
    ValueError: a line is not JSON, or lacks question, reference or grades.
  """
  rated = []
  with user_files.reading(path, "records of azr_jax.evaluate"):
    text = pathlib.Path(path).expanduser().read_text("utf-8")
  for line in filter(None, text.split("\n")):
    try:
      record = records.with_current_keys(json.loads(line))
      problem = Problem(record["question"], record["reference"]["answer"])
      correct = record["correct"]
      rated.append((problem, sum(correct) / len(correct)))
    except (KeyError, TypeError, ValueError, RecursionError, ArithmeticError):
      raise ValueError(
        f"{path}: expected records of azr_jax.evaluate, not {line:.80}"
      ) from None
  return rated


def select(
  rated: Iterable[tuple[Problem, float]],
  min_rate: float,
  max_rate: float,
  out: str,
) -> dict[str, int]:
  """Writes the problems whose pass rate is in a range, with its ends.

  Args:
    rated: problems with their pass rates.
    min_rate: the smallest pass rate.
    max_rate: the largest pass rate.
    out: the file of JSON lines.

  Returns:
    How many problems there are, and how many were kept.
  """
  rated = list(rated)
  kept = [(p, rate) for p, rate in rated if min_rate <= rate <= max_rate]
  path = pathlib.Path(out).expanduser()
  path.parent.mkdir(parents=True, exist_ok=True)
  with path.open("w", encoding="utf-8") as file:
    for problem, rate in kept:
      record = {
        "question": problem.question,
        "answer": problem.answer,
        "pass_rate": rate,
      }
      file.write(json.dumps(record, ensure_ascii=False) + "\n")
  return {"problems": len(rated), "kept": len(kept)}
