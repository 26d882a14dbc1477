"""Section `orz` of a configuration: problems, answers and their grading."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.grading.mathematics import grader
from azr_jax.tasks.mathematics import prompts as prompt_lib

LENGTH_STOPPED = ("wrong", "graded")
_COLLECTION = "hf:Open-Reasoner-Zero/orz_math_"


@dataclasses.dataclass(frozen=True)
class ORZSettings(Settings):
  """The values of section 2 of ORZ, or of its code where it names none."""

  data: tuple[str, ...] = setting(
    (
      _COLLECTION + "57k_collection",
      _COLLECTION + "72k_collection_extended",
    ),
    "sources of problems, as tasks/mathematics/sources.py reads them",
    paper="129k problems",
    required=True,
  )
  counts: tuple[int, ...] = setting(
    (0, 0),
    "most problems of each source; 0: all",
    required=True,
    accepts=(lambda v: min(v) >= 0, "a tuple of numbers of at least 0"),
  )
  data_seed: int = setting(0, "root of generated problems", at_least=0)
  prompts: int = setting(128, "problems of a step", paper="128", at_least=1)
  group_size: int = setting(64, "answers to each", paper="64", at_least=1)
  prompt_format: str = setting(
    "full", "prompt format", choices=prompt_lib.PROMPT_FORMATS
  )
  grader: str = setting(
    "math_verify", "how answers are compared", choices=grader.MODES
  )
  length_stopped: str = setting(
    "wrong",
    "grade of an answer that reached max_tokens after its box",
    paper="not named; the published code has wrong",
    choices=LENGTH_STOPPED,
  )
  health_samples: int = setting(
    256, "answers of a step whose repetition is scored", at_least=1
  )

  def check(self) -> None:
    """Refuses counts that are not one for each source."""
    if len(self.counts) != len(self.data):
      raise self.invalid(
        "counts", f"one for each of the {len(self.data)} sources of data"
      )
