"""Section `code_interpreter` of a configuration (R1-CI, sections 3, 4.1)."""

import dataclasses

from azr_jax.config.settings import setting
from azr_jax.curricula import improvement_potential as potential
from azr_jax.systems.code_interpreter import measurement
from azr_jax.systems.code_interpreter.agents import AGENTS
from azr_jax.systems.code_interpreter.codesteer import CodeSteerSettings
from azr_jax.systems.code_interpreter.rewards import RewardSettings
from azr_jax.systems.dynamic_sampling import DynamicSamplingSettings
from azr_jax.tasks.chats import TemplateSettings
from azr_jax.tasks.questions import prompts as prompt_lib
from azr_jax.tasks.questions import sources
from azr_jax.tools.python_tool import PythonToolSettings


@dataclasses.dataclass(frozen=True)
class CodeInterpreterSettings(TemplateSettings):
  """Questions, conversations about them, and the curriculum."""

  questions: tuple[str, ...] = setting(
    ("split:train",),
    "sources of questions (formats: tasks/questions/sources.py)",
    required=True,
  )
  count: int = setting(
    1_000_000, "maximum number of questions per source", minimum=1
  )
  tasks: tuple[str, ...] = setting(
    (),
    "tasks to train on, as names or prefixes such as symbench/; (): all",
    expert=True,
  )
  num_tasks: int = setting(
    0,
    "train on this many of the tasks, chosen by the seed; 0: all",
    paper="107; figure 3 (d) varies it",
    minimum=0,
    expert=True,
  )
  data_seed: int = setting(
    0,
    "seed for generated questions",
    minimum=0,
    accepts=sources.TRAINING_SEED,
  )
  prompts: int = setting(128, "questions per step", paper="128", minimum=1)
  group_size: int = setting(
    5, "conversations per question", paper="5", minimum=1
  )
  dynamic_sampling: DynamicSamplingSettings = DynamicSamplingSettings()
  prompt_format: str = setting(
    "full",
    "prompt format; with prompts.templates, of CodeSteer's own requests alone",
    choices=prompt_lib.PROMPT_FORMATS,
  )
  tool: PythonToolSettings = PythonToolSettings()
  rewards: RewardSettings = RewardSettings()
  steer: CodeSteerSettings = CodeSteerSettings()
  curriculum: str = setting(
    "potential",
    "rule that decides at which stage a question enters training",
    choices=potential.CURRICULA,
  )
  grouping: str = setting(
    "thresholds",
    "rule that sorts questions into groups by pass rate",
    choices=potential.GROUPINGS,
  )
  only_group: int = setting(
    0,
    "train on group 1, 2 or 3 of potential alone; each of them then has the "
    "same number of questions of each task; 0: off",
    paper="figure 14",
    minimum=0,
    maximum=max(potential.EQUAL_GROUPS),
    expert=True,
  )
  stage_steps: int = setting(
    150, "training steps per stage", paper="150", minimum=1
  )
  pass_rates: str = setting(
    "potential/pass_rates.jsonl",
    "pass-rate file from azr_jax.potential, for offline curricula",
  )
  shuffle_pass_rates: bool = setting(
    False,
    "shuffle pass rates among questions; a control with meaningless stages of "
    "the same sizes",
    expert=True,
  )
  pass_rate_agents: tuple[str, ...] = setting(
    ("text", "code", "code_agent", "steer"),
    "agents that measure pass rates for online curricula",
    paper="four agents",
    subset_of=AGENTS,
    required=True,
  )
  pass_rate_temperatures: tuple[float, ...] = setting(
    measurement.TEMPERATURES,
    "temperatures at which each agent answers once",
    paper="five, unspecified",
    required=True,
    accepts=(lambda v: min(v) > 0, "a tuple of numbers above 0"),
  )

  def check(self) -> None:
    """Rejects curricula without the pass rates or groups that they need."""
    self.dynamic_sampling.check_groups(self, self.group_size)
    if self.chat_template_kwargs and self.prompt_format != "chat":
      raise self.invalid(
        "chat_template_kwargs", "'' unless prompt_format='chat'"
      )
    if self.only_group and self.curriculum != "none":
      raise self.invalid("only_group", "0 unless curriculum='none'")
    if self.needs_pass_rates and not self.pass_rates:
      raise self.invalid(
        "pass_rates",
        f"a file of azr_jax.potential with curriculum={self.curriculum!r}, "
        f"only_group={self.only_group}",
      )
    if self.shuffle_pass_rates and self.curriculum not in potential.OFFLINE:
      raise self.invalid(
        "shuffle_pass_rates",
        f"False unless curriculum is in {potential.OFFLINE}",
      )
    if self.curriculum == "difficulty" and self.grouping != "quantiles":
      raise self.invalid("grouping", "'quantiles' with curriculum='difficulty'")

  @property
  def needs_pass_rates(self) -> bool:
    """Whether a run reads pass rates before its first step."""
    return self.curriculum in potential.OFFLINE or self.only_group > 0
