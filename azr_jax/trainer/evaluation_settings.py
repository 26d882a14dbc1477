"""Sections `evaluation` and `evaluate`: benchmarks during and after a run."""

import dataclasses

from azr_jax.config.settings import setting
from azr_jax.evals import (
  livecodebench,
  mathematics,
  program_tasks,
  prompt_formats,
  registry,
)
from azr_jax.evals.benchmark import Benchmark
from azr_jax.evals.livecodebench_files import ContestSettings
from azr_jax.evals.mathematics import MathematicsSettings
from azr_jax.evals.program_tasks import TRAINING, SolverPrompt
from azr_jax.systems.benchmark_agents import AGENTS, SteerSettings
from azr_jax.tasks.chats import ChatSettings
from azr_jax.tasks.mathematics import prompts as mathematics_prompts
from azr_jax.tasks.programs import prompts as program_prompts
from azr_jax.tasks.templates import Templates
from azr_jax.tools.python_tool import PythonToolSettings

# Formats of the public benchmarks, then of this package's own.
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
class PeriodicSettings(ChatSettings):
  """Benchmarks that score the policy before, during and after training."""

  every: int = setting(
    0,
    "steps between evaluations, starting before step 1; the final policy is "
    "evaluated too; 0: never",
    paper="AZR: 10 (figure 14); ORZ: 50 (figure 1); the others: not stated",
    minimum=0,
  )
  benchmarks: str = setting(
    "",
    "comma-separated benchmark names, from evals/registry.py",
    paper="AZR: cruxeval_i,cruxeval_o,livecodebench_execution; R1-CI: "
    "questions; ORZ: aime24,aime25,math500,gpqa; Countdown: countdown",
  )
  data: str = setting("", "data files, as for --data of azr_jax.evaluate")
  limit: int = setting(
    50,
    "maximum number of items per benchmark; 0: all (countdown: 50)",
    paper="0; Countdown: 50",
    minimum=0,
  )
  samples: int = setting(
    1,
    "responses per item",
    paper="AZR, R1-CI: 1; ORZ, Countdown: 16",
    minimum=1,
  )
  temperature: float = setting(
    0.0,
    "divides the logits; 0 is greedy",
    paper="AZR: 0 (section 4.1); ORZ: 1; R1-CI, Countdown: 0.6",
    minimum=0,
  )
  prompt_format: str = setting(
    "full",
    "prompt format; training uses the solver's training prompts and grading; "
    "with prompts.templates only training has an effect",
    paper="that of training; AZR: training",
    choices=(TRAINING, *PROMPT_FORMATS),
  )
  mathematics: MathematicsSettings = MathematicsSettings()

  def check(self) -> None:
    """Rejects several greedy responses per item: they would be equal."""
    if self.samples > 1 and self.temperature == 0:
      raise self.invalid("samples", "1, because evaluation.temperature=0.0")
    _check_chat(self, self.prompt_format)

  @property
  def names(self) -> tuple[str, ...]:
    """The benchmarks that are due at some step.

    Raises:
      ValueError: there is no such benchmark.
    """
    due = self.every and self.benchmarks
    return registry.names(self.benchmarks) if due else ()

  def benchmark(
    self, name: str, solver_prompt: SolverPrompt | None = None
  ) -> Benchmark:
    """Returns a benchmark with the prompts and grading of these settings.

    Args:
      name: one of `names`.
      solver_prompt: training's prompt of a program task, if it has one.
    """
    benchmark = mathematics.with_grading(
      registry.find(name), **vars(self.mathematics)
    )
    if self.prompt_format != TRAINING:
      return benchmark
    return program_tasks.with_training_prompt(benchmark, solver_prompt)


@dataclasses.dataclass(frozen=True)
class BenchmarkSettings(ChatSettings):
  """Prompts and limits of `azr_jax.evaluate`."""

  prompt_format: str = setting(
    "compact",
    "prompt format; with prompts.templates, of CodeSteer's own requests alone",
    choices=PROMPT_FORMATS,
  )
  samples: int = setting(1, "responses per item", minimum=1)
  max_tokens: str = setting(
    "",
    "longest completion per benchmark, in tokens: comma-separated NAME=NUMBER, "
    "where NAME may be a group and the last match counts; at most "
    "rollout.max_tokens, which is the only limit of agents",
    paper="AZR: math=16000,livecodebench=8096",
  )
  agents: tuple[str, ...] = setting(
    (),
    "R1-CI agents that answer the benchmarks; (): the model answers directly",
    subset_of=AGENTS,
  )
  tool: PythonToolSettings = PythonToolSettings()
  mathematics: MathematicsSettings = MathematicsSettings()
  livecodebench: ContestSettings = ContestSettings()
  steer: SteerSettings = SteerSettings()

  def check(self) -> None:
    """Rejects lengths, chat options and agents that do not fit together."""
    _check_chat(self, self.prompt_format)
    if self.prefill and self.agents:
      raise self.invalid("prefill", "'' with agents")
    try:
      registry.numbers(self.max_tokens)
    except ValueError as error:
      raise self.invalid(
        "max_tokens", f"NAME=NUMBER between commas; {error}"
      ) from None

  def longest(self, benchmark: str) -> int | None:
    """Returns a benchmark's own completion limit in tokens, or None."""
    return registry.numbers(self.max_tokens).get(benchmark)

  def benchmark(self, name: str) -> Benchmark:
    """Returns a benchmark with the grading of these settings.

    Args:
      name: a name of `evals/registry.py`.
    """
    if name == livecodebench.NAME:
      return livecodebench.for_release(**vars(self.livecodebench))
    return mathematics.with_grading(
      registry.find(name), **vars(self.mathematics)
    )


def check_beside_templates(
  settings: ChatSettings, section: str, templates: Templates | None
) -> None:
  """Rejects arguments of a chat template, which a user's prompts replace.

  Args:
    section: the name of the section.
    templates: the user's prompts; None if the built-in ones are used.
  """
  if templates is not None and settings.chat_template_kwargs:
    raise settings.invalid(
      "chat_template_kwargs",
      "'' with prompts.templates, which have the whole prompt",
    ).inside(section)


def _check_chat(settings: ChatSettings, prompt_format: str) -> None:
  """Rejects chat options unless prompts are chats."""
  for key in ("chat_template_kwargs", "prefill"):
    if getattr(settings, key) and prompt_format != "chat":
      raise settings.invalid(key, "'' unless prompt_format='chat'")
