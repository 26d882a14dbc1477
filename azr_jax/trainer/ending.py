"""What a run prints at its end: what is saved, and how to score it."""

import pathlib
import shlex

from azr_jax.config.settings import Settings
from azr_jax.run import preemption, storage
from azr_jax.tasks.chats import TemplateSettings
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
  suggested = settings.system.about(settings.system_settings).scoring
  if suggested is None:
    return "see docs/evaluation.md"
  scores = folder
  if storage.is_object_store(folder):
    scores = pathlib.Path("/tmp") / folder.name
  data = suggested.data
  if not data and suggested.benchmark == settings.shared.evaluation.benchmarks:
    data = settings.shared.evaluation.data
  command = [
    "python -m azr_jax.evaluate",
    f"--config=configs/evaluate.py:{suggested.variant}",
    f"--benchmark={suggested.benchmark}",
    *([f"--data={shlex.quote(data)}"] if data else []),
    *_template_flags(settings.system_settings),
    f"--model={shlex.quote(str(folder))}",
    f"--workdir={shlex.quote(f'{scores}_scores')}",
  ]
  note = f"  ({suggested.note})" if suggested.note else ""
  return " ".join(command) + note


def _template_flags(section: Settings) -> list[str]:
  """Returns the flag that gives a benchmark the run's template arguments."""
  if not isinstance(section, TemplateSettings):
    return []
  text = section.chat_template_kwargs
  flag = f"--config.evaluate.chat_template_kwargs={shlex.quote(text)}"
  return [flag] if text else []
