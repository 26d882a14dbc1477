"""Sections `evaluation` and `evaluate`: benchmarks during and after a run."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.evals import prompt_formats
from azr_jax.rollout.python_tool import PythonToolSettings
from azr_jax.systems.code_interpreter.agents import AGENTS
from azr_jax.systems.code_interpreter.codesteer import CodeSteerSettings
from azr_jax.tasks.mathematics import prompts as mathematics_prompts
from azr_jax.tasks.programs import prompts as program_prompts

# The formats of public benchmarks, then those of this package's benchmarks.
PROMPT_FORMATS = tuple(
  dict.fromkeys(
    (
      *prompt_formats.PROMPT_FORMATS,
      *program_prompts.PROMPT_FORMATS,
      *mathematics_prompts.PROMPT_FORMATS,
    )
  )
)


@dataclasses.dataclass(frozen=True)
class PeriodicSettings(Settings):
  """Benchmarks that score the policy during training."""

  every: int = setting(0, "steps between evaluations; 0: never", at_least=0)
  benchmarks: str = setting("", "comma-separated names of evals/registry.py")
  data: str = setting("", "files, as --data of azr_jax.evaluate takes them")
  limit: int = setting(
    50, "maximum number of items per benchmark; 0: all", at_least=0
  )
  samples: int = setting(1, "responses per item", at_least=1)
  prompt_format: str = setting("full", "prompt format", choices=PROMPT_FORMATS)


@dataclasses.dataclass(frozen=True)
class BenchmarkSettings(Settings):
  """The prompts of `azr_jax.evaluate`; section `rollout` has the sampling."""

  prompt_format: str = setting(
    "compact", "prompt format", choices=PROMPT_FORMATS
  )
  samples: int = setting(1, "responses per item", at_least=1)
  agents: tuple[str, ...] = setting(
    (),
    "agents of R1-CI that answer the benchmarks; (): the model answers alone",
    subset_of=AGENTS,
  )
  tool: PythonToolSettings = PythonToolSettings()
  steer: CodeSteerSettings = CodeSteerSettings()
