"""Section `environment` of a configuration."""

import dataclasses

from azr_jax.config.settings import setting
from azr_jax.environments import kits
from azr_jax.systems.dynamic_sampling import DynamicSamplingSettings
from azr_jax.tasks.chats import ChatSettings


@dataclasses.dataclass(frozen=True)
class EnvironmentSettings(ChatSettings):
  """The settings of the system."""

  spec: str = setting("", f"the environment: {kits.EXPECTED}")
  tasks: int = setting(
    0, "maximum number of training tasks; 0 means all", minimum=0
  )
  evaluation_tasks: int = setting(
    0, "number of last tasks to hold out for periodic evaluations", minimum=0
  )
  prompts: int = setting(16, "tasks per step", minimum=1)
  group_size: int = setting(8, "episodes per task", minimum=1)
  max_turns: int = setting(
    8, "maximum number of model replies per episode", minimum=1
  )
  max_output_tokens: int = setting(
    500,
    "maximum tokens per environment message; longer ones lose their middle",
    minimum=8,
  )
  system_prompt: str = setting(
    "", "system message of episodes that have none; empty adds none"
  )
  timeout_s: float = setting(
    30.0, "timeout of the environment per turn, seconds", above=0
  )
  workers: int = setting(2, "environment processes on each host", minimum=1)
  dynamic_sampling: DynamicSamplingSettings = DynamicSamplingSettings()

  def check(self) -> None:
    """Rejects malformed specs, and groups of one where groups are compared."""
    if self.spec:
      try:
        kits.parse(self.spec)
      except ValueError:
        raise self.invalid("spec", kits.EXPECTED) from None
    self.dynamic_sampling.check_groups(self, self.group_size)
