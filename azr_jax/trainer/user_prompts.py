"""The user's prompts of a command: read, and the same when it resumes.

A folder's config keeps the digest of all prompts that its contents depend on.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from azr_jax.config.settings import Invalid
from azr_jax.evals import template_folder
from azr_jax.evals.benchmark import Benchmark
from azr_jax.run import folder as folder_lib
from azr_jax.run import storage
from azr_jax.run.session import Run
from azr_jax.tasks import templates as templates_lib
from azr_jax.tasks.questions import prompts as question_prompts
from azr_jax.tasks.templates import PromptFiles, PromptSettings, Templates
from azr_jax.trainer import loading
from azr_jax.trainer.evaluation_settings import check_beside_templates
from azr_jax.trainer.settings import EvaluateSettings, ExperimentSettings

# Settings of a command that scores answers.
SettingsT = TypeVar("SettingsT", bound=EvaluateSettings)
# Once these exist, a folder of answers keeps its configuration.
RECORDS = ("*.jsonl",)


def read(
  prompts: PromptSettings,
  needed: PromptFiles,
  benchmarks: Iterable[Benchmark] = (),
) -> Templates | None:
  """Returns the user's prompts of a command; see `template_folder.read`.

  Raises:
    Invalid: a prompt is wrong, missing or unused, or differs from the section's
      digest.
  """
  try:
    return template_folder.read(
      **vars(prompts), needed=needed, benchmarks=benchmarks
    )
  except Invalid as error:
    raise error.inside("config") from None


def digest_of_run(
  checked: ExperimentSettings,
  workdir: str,
  begun_with: Mapping[str, Any] | None,
) -> str:
  """Returns the digest of the prompts that training asks with.

  It leaves out the prompts of benchmarks, which a resumed run may change.

  Args:
    checked: the settings of the run.
    workdir: the run folder.
    begun_with: the config the run started with, or None for a new run.

  Raises:
    ValueError: the run started with other prompts.
  """
  digest, settings = "", checked.system_settings
  if checked.templates is not None:
    digest = checked.templates.digest_of(checked.system.prompt_files(settings))
  if begun_with is not None:
    folder = checked.shared.prompts.templates
    earlier = _digest_in(begun_with)
    _refuse(templates_lib.changed(digest, earlier), folder, workdir)
  return digest


def read_for_scores(
  settings: SettingsT,
  workdir: str,
  needed: PromptFiles | None = None,
  benchmarks: Iterable[Benchmark] = (),
  agents: Collection[str] = (),
) -> tuple[SettingsT, Templates | None]:
  """Returns settings with the digest of the user's prompts, and the prompts.

  The digest includes the prompts of earlier commands in the same folder, which
  may have asked other benchmarks.

  Args:
    settings: a configuration with a section `prompts`.
    workdir: the folder of records.
    needed: the prompts that the command cannot do without.
    benchmarks: the benchmarks that it asks.
    agents: the agents that answer.

  Raises:
    ValueError: as `read`, or a prompt differs from that of earlier records, or
      arguments of the chat template have no effect.
  """
  templates = read(settings.prompts, needed or {}, benchmarks)
  if question_prompts.STEER not in agents:
    section = "config.evaluate"
    check_beside_templates(settings.evaluate, section, templates)
  digest = "" if templates is None else templates.digest
  begun_with = folder_lib.begun_config(storage.resolve(workdir), RECORDS)
  if begun_with is not None:
    earlier = _digest_in(begun_with.get("config", {}))
    # Built-in prompts have no digest: then all names differ.
    in_both = bool(digest) is bool(earlier)
    changed = templates_lib.changed(digest, earlier, in_both)
    _refuse(changed, settings.prompts.templates, workdir)
    digest = templates_lib.joined(earlier, digest)
  prompts = dataclasses.replace(settings.prompts, digest=digest)
  return dataclasses.replace(settings, prompts=prompts), templates


def print_differing(
  templates: Templates | None, model_spec: str, run: Run
) -> None:
  """Prints which prompts differ from those that a run trained with.

  Args:
    templates: the user's prompts; None if the built-in ones are used.
    model_spec: a run folder, or another model spec, which has no prompts.
    run: prints.
  """
  if not loading.is_run(model_spec):
    return
  config = loading.read_run_config(storage.resolve(model_spec)).to_dict()
  trained, digest = _digest_in(config), ""
  if templates is not None:
    digest = templates.digest
  names = templates_lib.changed(digest, trained, in_both=True)
  if trained and not digest:
    run.print_status(
      f"{model_spec} was trained with the prompts of "
      f"{config['prompts']['templates']}, and is asked with built-in ones"
    )
  elif digest and not trained:
    run.print_status(
      f"{model_spec} was trained with built-in prompts, and is asked with your "
      "own"
    )
  elif names:
    run.print_status(
      f"{model_spec} was trained with other texts of these prompts: "
      f"{', '.join(names)}"
    )


def _digest_in(config: Mapping[str, Any]) -> str:
  return config.get("prompts", {}).get("digest", "")


def _refuse(changed: list[str], folder: str, workdir: str) -> None:
  """Raises ValueError if prompts differ from those that a folder has used."""
  if changed:
    raise ValueError(
      f"config.prompts.templates={folder!r} has other prompts than {workdir} "
      f"started with ({', '.join(changed)}): expected the same texts, or "
      "another --workdir"
    )
