"""Messages of commands about their model, and at the end of a run."""

import pathlib
import shlex

import jax

from azr_jax.config.settings import Settings
from azr_jax.models.load import ModelSource
from azr_jax.run import sigterm, storage
from azr_jax.run.console import print_status
from azr_jax.tasks.chats import TemplateSettings
from azr_jax.trainer.settings import ExperimentSettings

# The settings that limit a prompt and its response.
_LENGTHS = "config.rollout.prompt_buckets or config.rollout.max_tokens"


def announce_model(
  source: ModelSource,
  longest: int,
  keys: str = _LENGTHS,
  name: str = "the model",
) -> None:
  """Prints the model's notes, and a warning if sequences may be too long.

  Only the primary host prints.

  Args:
    source: the model.
    longest: tokens of the longest prompt and response together. 0 if the
      command itself respects the model's maximum.
    keys: the settings to lower if sequences are too long.
    name: what the warning calls the model.
  """
  if jax.process_index():
    return
  for note in source.notes:
    print_status(note)
  limit = source.config.max_positions
  if longest > limit:
    print_status(
      f"warning: sequences may reach {longest} tokens, but {name} has "
      f"max_position_embeddings={limit} and is unreliable beyond: lower {keys}"
    )


def closing_message(
  settings: ExperimentSettings, folder: pathlib.Path, step: int
) -> str:
  """Returns the lines to print when a run ends after a step."""
  is_stopped = step < settings.shared.train.steps
  stopped = ""
  if is_stopped:
    stopped = f"{sigterm.STOPPED}: the same command resumes it\n"
  return (
    f"{stopped}step {step} is saved in {folder}; to score it: "
    f"{_scoring(settings, folder)}"
  )


def _prompt_flags(templates: str) -> list[str]:
  """Returns the flag for the folder of prompts that a run was trained with."""
  return [f"--templates={shlex.quote(templates)}"] if templates else []


def _scoring(settings: ExperimentSettings, folder: pathlib.Path) -> str:
  """Returns a command that scores a run into a local folder."""
  suggested = settings.system.about(settings.system_settings).scoring
  if suggested is None:
    return "see docs/guide/evaluate.md"
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
    *_prompt_flags(settings.shared.prompts.templates),
    f"--model={shlex.quote(str(folder))}",
    f"--workdir={shlex.quote(f'{scores}_scores')}",
  ]
  note = f"  ({suggested.note})" if suggested.note else ""
  return " ".join(command) + note


def _template_flags(section: Settings) -> list[str]:
  """Returns the flag that passes the run's template arguments, if any."""
  if not isinstance(section, TemplateSettings):
    return []
  text = section.chat_template_kwargs
  flag = f"--config.evaluate.chat_template_kwargs={shlex.quote(text)}"
  return [flag] if text else []
