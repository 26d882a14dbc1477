"""Reads a user's prompts for training and benchmarks.

| asked | file |
| --- | --- |
| in training | the system's, such as `math.txt` |
| by benchmarks that write their own prompts | their `prompt_files` |
| by other benchmarks | `NAME.txt`; without it, `benchmark_FORMAT.txt` |

NAME is the benchmark's name, and FORMAT its answer format. A folder has no
other files, except for those of a system from which the command uses some.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from azr_jax.config.settings import Invalid
from azr_jax.evals import prompt_formats
from azr_jax.evals.benchmark import Benchmark
from azr_jax.tasks import templates as templates_lib
from azr_jax.tasks.countdown import prompts as countdown_prompts
from azr_jax.tasks.mathematics import prompts as mathematics_prompts
from azr_jax.tasks.programs import templates as program_templates
from azr_jax.tasks.questions import prompts as question_prompts
from azr_jax.tasks.templates import PromptFile, PromptFiles, Templates

_NO_FILES: Mapping[str, PromptFile] = {}
# Files of one system. A command that uses some of them accepts the others, so
# that a run and its benchmarks may share a folder.
_FAMILIES: tuple[PromptFiles, ...] = (
  program_templates.FILES,
  mathematics_prompts.FILES,
  question_prompts.FILES,
  countdown_prompts.FILES,
)


def read(
  templates: str,
  digest: str = "",
  needed: PromptFiles = _NO_FILES,
  benchmarks: Iterable[Benchmark] = (),
) -> Templates | None:
  """Returns the prompts of a folder; None if there is no folder.

  Args:
    templates: the folder, or "".
    digest: the digest that its prompts must have; "" for any.
    needed: files without which the command cannot do its work.
    benchmarks: the benchmarks that the command asks.

  Raises:
    Invalid: the command asks with no user's prompts; the folder has none, one
      that is wrong or one that the command does not use; it lacks one that is
      needed; or a prompt differs from its digest.
  """
  if not templates:
    return None
  try:
    sources, files = _used(needed, benchmarks, templates_lib.present(templates))
    if not files:
      raise ValueError("expected '', because this command uses no such prompts")
    found = templates_lib.read(templates, files)
    found.require(needed)
  except (OSError, ValueError) as error:
    raise Invalid("prompts.templates", f"={templates!r}: {error}") from None
  found = dataclasses.replace(found, sources=sources)
  changed = templates_lib.changed(digest, found.digest, in_both=True)
  if changed:
    raise Invalid(
      "prompts.digest",
      f"={digest!r}: expected '' or {found.digest!r}, because {templates} has "
      f"another text of {', '.join(changed)}",
    )
  return found


def _used(
  needed: PromptFiles, benchmarks: Iterable[Benchmark], present: Iterable[str]
) -> tuple[dict[str, str], dict[str, PromptFile]]:
  """Returns the prompts that a command asks with, and the files it accepts.

  Args:
    needed: as for `read`.
    benchmarks: as for `read`.
    present: names of the folder's files.

  Returns:
    The file of each prompt, and what each accepted file may contain.
  """
  present, files = set(present), dict(needed)
  sources = {name: name for name in needed}
  for benchmark in benchmarks:
    if benchmark.prompt is not None:
      files |= benchmark.prompt_files
      sources |= {name: name for name in benchmark.prompt_files}
      continue
    name = benchmark.name
    if name not in present:
      name = prompt_formats.file_of(benchmark.answer_format)
    sources[benchmark.name] = name
    files |= dict.fromkeys((benchmark.name, name), prompt_formats.FILE)
  for family in _FAMILIES:
    if not family.keys().isdisjoint(sources.values()):
      files = {**family, **files}
  return sources, files
