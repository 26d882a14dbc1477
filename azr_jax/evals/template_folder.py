"""Reads a user's prompts for training and benchmarks.

| benchmarks | file |
| --- | --- |
| that write training's prompts | training's file, such as `math.txt` |
| all others | `NAME.txt`; without it, `benchmark_FORMAT.txt` |

NAME is the benchmark's name, and FORMAT its answer format.
"""

from collections.abc import Mapping

from azr_jax.config.settings import Invalid
from azr_jax.evals import prompt_formats, registry
from azr_jax.tasks import templates as templates_lib
from azr_jax.tasks.countdown import prompts as countdown_prompts
from azr_jax.tasks.mathematics import prompts as mathematics_prompts
from azr_jax.tasks.programs import templates as program_templates
from azr_jax.tasks.questions import prompts as question_prompts
from azr_jax.tasks.templates import PromptFile, Templates

_NO_FILES: Mapping[str, PromptFile] = {}


def known_files() -> dict[str, PromptFile]:
  """Returns all files that a folder may have, by name without suffix."""
  return {
    **program_templates.FILES,
    **mathematics_prompts.FILES,
    **question_prompts.FILES,
    **countdown_prompts.FILES,
    **prompt_formats.FILES,
    **dict.fromkeys(registry.BENCHMARKS, prompt_formats.FILE),
  }


def read(
  templates: str,
  digest: str = "",
  needed: Mapping[str, PromptFile] = _NO_FILES,
) -> Templates | None:
  """Returns the prompts of a folder; None if there is no folder.

  Args:
    templates: the folder, or "".
    digest: the digest that its prompts must have; "" for any.
    needed: files without which the command cannot do its work.

  Raises:
    Invalid: the folder has no prompts, or one that is wrong; it lacks one that
      is needed; or its digest is another one.
  """
  if not templates:
    return None
  try:
    found = templates_lib.read(templates, {**known_files(), **needed})
    found.require(needed)
  except (OSError, ValueError) as error:
    raise Invalid("prompts.templates", f"={templates!r}: {error}") from None
  if digest not in ("", found.digest):
    raise Invalid(
      "prompts.digest",
      f"={digest!r}: expected {found.digest!r}, the digest of the prompts in "
      f"{templates}",
    )
  return found
