"""What a run prints at its end: what is saved, and how to score it."""

import pathlib
import shlex

from azr_jax.run import preemption, storage
from azr_jax.trainer.settings import ExperimentSettings


def closing_message(
  settings: ExperimentSettings, folder: pathlib.Path, step: int
) -> str:
  """Returns the lines to print when a run ends after a step."""
  is_stopped = step < settings.shared.train.steps
  stopped = ""
  if is_stopped:
    stopped = f"{preemption.STOPPED}: the same command resumes it\n"
  return (
    f"{stopped}step {step} is saved in {folder}; to score it: "
    f"{_scoring(settings, folder)}"
  )


def _scoring(settings: ExperimentSettings, folder: pathlib.Path) -> str:
  """Returns the command that scores a run, on a folder of this machine."""
  evaluation = settings.system.evaluation(settings.system_settings)
  if evaluation is None:
    return "see docs/evaluation.md"
  scores = folder
  if storage.is_object_store(folder):
    scores = pathlib.Path("/tmp") / folder.name
  data = evaluation.data
  if not data and evaluation.benchmark == settings.shared.evaluation.benchmarks:
    data = settings.shared.evaluation.data
  command = [
    "python -m azr_jax.evaluate",
    f"--config=configs/evaluate.py:{evaluation.variant}",
    f"--benchmark={evaluation.benchmark}",
    *([f"--data={shlex.quote(data)}"] if data else []),
    f"--model={shlex.quote(str(folder))}",
    f"--workdir={shlex.quote(f'{scores}_scores')}",
  ]
  note = f"  ({evaluation.note})" if evaluation.note else ""
  return " ".join(command) + note
