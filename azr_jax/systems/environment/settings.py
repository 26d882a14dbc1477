"""Section `environment` of a configuration: which one, and how it is run."""

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
    0, "maximum number of tasks to train on; 0: all", minimum=0
  )
  evaluation_tasks: int = setting(
    0, "number of last tasks, which periodic evaluations use", minimum=0
  )
  prompts: int = setting(16, "tasks per step", minimum=1)
  group_size: int = setting(8, "episodes of each task", minimum=1)
  max_turns: int = setting(8, "replies of the model in an episode", minimum=1)
  max_output_tokens: int = setting(
    500,
    "longest message of the environment, tokens; its middle is left out",
    minimum=8,
  )
  system_prompt: str = setting(
    "", "first message of an episode that has no system message; '': none"
  )
  timeout_s: float = setting(
    30.0, "time that the environment may take for a turn, seconds", above=0
  )
  workers: int = setting(
    2, "processes of the environment on each host", minimum=1
  )
  dynamic_sampling: DynamicSamplingSettings = DynamicSamplingSettings()

  def check(self) -> None:
    """Refuses specs of another form, and groups of one that are compared."""
    if self.spec:
      try:
        kits.parse(self.spec)
      except ValueError:
        raise self.invalid("spec", kits.EXPECTED) from None
    self.dynamic_sampling.check_groups(self, self.group_size)
