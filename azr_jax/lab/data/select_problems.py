"""Selects problems by their pass rate and writes them to a file.

ORZ (arXiv 2503.24290, section 2.3) anneals on problems that were solved fewer
than 4 out of 64 times. Its data are problems solved 1 to 7 out of 8 times.
"""

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from azr_jax.config import user_files
from azr_jax.curricula.improvement_potential import PassRate
from azr_jax.evals import record_files
from azr_jax.run import checkpoint_reading, storage
from azr_jax.tasks.mathematics.problem import Problem
from azr_jax.trainer import loading
from azr_jax.trainer import settings as train_settings


@runtime_checkable
class KeepsPassRates(Protocol):
  """A system whose state has the last pass rate of each problem."""

  @classmethod
  def pass_rates(
    cls, settings: Any, state: dict[str, Any]
  ) -> Sequence[tuple[Problem, float]]:
    """Returns the problems that a run sampled, with their last pass rates.

    Args:
      settings: the settings of the run's system.
      state: what `state_dict` returned at its last checkpoint.
    """


def of_run(run: str) -> Sequence[tuple[Problem, float]]:
  """Returns the problems that a run sampled, with their last pass rates.

  Raises:
    ValueError: the folder is not a run's or has no checkpoint, or the run's
      system stores no pass rates.
  """
  folder = storage.resolve(run)
  config = loading.read_run_config(folder)
  settings = train_settings.read_train(config)
  with checkpoint_reading.open_to_read(folder) as (checkpoints, step):
    state = checkpoints.restore_system(step)
  system = settings.system
  if not issubclass(system, KeepsPassRates):
    raise ValueError(
      f"a run of system {system.name!r} keeps no pass rates: expected a run of "
      "configs/orz.py"
    )
  return system.pass_rates(settings.system_settings, state)


def of_records(paths: Sequence[str]) -> list[tuple[Problem, float]]:
  """Returns the problems in record files, with their pass rates over all files.

  Args:
    paths: record files of an evaluation or of `azr_jax.potential`, with one or
      more passes over problems.

  Raises:
    ValueError: a file has a record without question, reference or grades.
  """
  rates: dict[Problem, PassRate] = {}
  for path in paths:
    file = storage.resolve(path)
    with user_files.reading(file, "records of mathematical problems"):
      for record in record_files.read(file):
        problem = Problem(record["question"], record["reference"]["answer"])
        correct = record["correct"]
        if not correct:
          raise ValueError("a record has no grades")
        before = rates.get(problem, PassRate(0, 0))
        rates[problem] = PassRate(
          before.num_correct + sum(correct), before.num_samples + len(correct)
        )
  return [(problem, rate.rate) for problem, rate in rates.items()]


def select(
  rated: Iterable[tuple[Problem, float]],
  min_rate: float,
  max_rate: float,
  out: str,
) -> dict[str, int]:
  """Writes the problems whose pass rate lies in a closed range.

  Args:
    rated: problems with their pass rates.
    min_rate: minimum pass rate.
    max_rate: maximum pass rate.
    out: the JSON lines file to write.

  Returns:
    The numbers of all problems and of the kept ones.
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
