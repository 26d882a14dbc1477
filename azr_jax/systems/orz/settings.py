"""Section `orz` of a configuration: problems, sampling and grading."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.curricula.bandit import BanditSettings
from azr_jax.grading.mathematics import grader, reward
from azr_jax.systems.dynamic_sampling import DynamicSamplingSettings
from azr_jax.tasks.mathematics import prompts as prompt_lib
from azr_jax.tasks.mathematics import sources

EPOCHS, BANDIT = CURRICULA = ("epochs", "bandit")
_COLLECTION = "hf:Open-Reasoner-Zero/orz_math_"


@dataclasses.dataclass(frozen=True)
class ORZSettings(Settings):
  """The settings of ORZ.

  Defaults follow section 2 of the paper, or the published code where the paper
  is silent.
  """

  data: tuple[str, ...] = setting(
    (
      _COLLECTION + "57k_collection",
      _COLLECTION + "72k_collection_extended",
    ),
    "sources of problems (formats: tasks/mathematics/sources.py)",
    paper="129k problems",
    required=True,
  )
  counts: tuple[int, ...] = setting(
    (0, 0),
    "maximum number of problems from each source; 0 means all",
    required=True,
    accepts=(lambda v: min(v) >= 0, "a tuple of numbers of at least 0"),
  )
  data_seed: int = setting(0, "seed for generated problems", minimum=0)
  language: str = setting(
    "all",
    "language of problems to keep; english drops those with Chinese characters",
    paper="english (C.2: with Chinese problems training was less stable)",
    choices=sources.LANGUAGES,
    expert=True,
  )
  prompts: int = setting(128, "problems per step", paper="128", minimum=1)
  group_size: int = setting(64, "responses per problem", paper="64", minimum=1)
  curriculum: str = setting(
    EPOCHS,
    "how problems are chosen: shuffled epochs, or a bandit over sources",
    choices=CURRICULA,
  )
  bandit: BanditSettings = BanditSettings()
  dynamic_sampling: DynamicSamplingSettings = DynamicSamplingSettings()
  prompt_format: str = setting(
    "full",
    "prompt format; unused with prompts.templates",
    choices=prompt_lib.PROMPT_FORMATS,
  )
  grader: str = setting(
    "math_verify",
    "grader that compares answers with the reference",
    choices=grader.MODES,
  )
  truncated_grade: str = setting(
    "graded",
    "grade of an answer whose response was truncated after it",
    paper="graded; the published code calls it incorrect",
    choices=reward.TRUNCATED_GRADES,
  )

  def check(self) -> None:
    """Rejects counts that do not match the sources, and groups of one."""
    if self.curriculum == BANDIT and self.group_size < 2:
      raise self.invalid(
        "group_size",
        f"at least 2 with curriculum={BANDIT!r}, which learns from advantages",
      )
    self.dynamic_sampling.check_groups(self, self.group_size)
    if len(self.counts) != len(self.data):
      raise self.invalid(
        "counts", f"one for each of the {len(self.data)} sources of data"
      )
