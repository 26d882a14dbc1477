"""Section `code_interpreter` of a configuration: R1-CI, sections 3 and 4.1."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.curricula import improvement_potential as potential
from azr_jax.rollout.python_tool import PythonToolSettings
from azr_jax.systems.code_interpreter.agents import AGENTS
from azr_jax.systems.code_interpreter.rewards import RewardSettings
from azr_jax.tasks.questions import prompts as prompt_lib


@dataclasses.dataclass(frozen=True)
class CodeInterpreterSettings(Settings):
  """Questions, conversations about them, and the order of training."""

  questions: tuple[str, ...] = setting(
    ("questions/train.jsonl",),
    "files of questions, gym:NAME(key=value), bbh:PATH or symbench:PATH",
    needed=True,
  )
  count: int = setting(1_000_000, "most questions of each", at_least=1)
  data_seed: int = setting(0, "root of gym sets", at_least=0)
  prompts: int = setting(128, "questions of a step", paper="128", at_least=1)
  group_size: int = setting(
    5, "conversations about each question", paper="5", at_least=1
  )
  prompt_style: str = setting(
    "full", "prompt format", one_of=prompt_lib.PROMPT_FORMATS
  )
  tool: PythonToolSettings = PythonToolSettings()
  rewards: RewardSettings = RewardSettings()
  order: str = setting(
    "potential", "how questions enter the stages", one_of=potential.ORDERS
  )
  grouping: str = setting(
    "thresholds", "how pass rates become groups", one_of=potential.GROUPINGS
  )
  stage_steps: int = setting(150, "steps of a stage", paper="150", at_least=1)
  measured: str = setting(
    "potential/measured.jsonl",
    "pass rates: what azr_jax.potential --workdir=potential writes",
  )
  measure_agents: tuple[str, ...] = setting(
    ("text", "code", "free", "steer"),
    "agents whose answers the online orders measure",
    paper="four agents",
    some_of=AGENTS,
    needed=True,
  )
  measure_samples: int = setting(
    5, "answers of each agent to each question", paper="5", at_least=1
  )

  def check(self) -> None:
    """Refuses orders without the pass rates or groups that they need."""
    if self.order not in ("none", *potential.ONLINE) and not self.measured:
      raise self.invalid(
        "measured", f"a file of azr_jax.potential with order={self.order!r}"
      )
    if self.order == "difficulty" and self.grouping != "quantiles":
      raise self.invalid("grouping", "'quantiles' with order='difficulty'")
