"""The `System` interface: a class that turns a policy into trajectories.

A system is one class, in a package of this folder or anywhere else:

  class Palindromes(System):
    name = "palindromes"
    Settings = PalindromeSettings

    async def collect(self, policy, step):
      ...
      return RolloutBatch(trajectories, metrics)

`config.system` names it (`registry.py`), `config.NAME` holds its settings, and
the trainer does the rest: sampling, learning, logging, checkpoints, resume.
"""

import abc
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from azr_jax.config import settings as settings_lib
from azr_jax.executor import Executor
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.run import console
from azr_jax.run.records import Records
from azr_jax.tasks.templates import PromptFiles, PromptFormat, Templates
from azr_jax.types import RolloutBatch


@dataclasses.dataclass(frozen=True)
class Context:
  """Everything that a system is built from, apart from its settings.

  Attributes:
    seed: the seed for all random draws on the host.
    steps: training steps of the whole run, for schedules.
    jobs: runs executor jobs, distributed over the hosts.
    executor: this host's executor, for environments that submit jobs.
    hosts: the processes of the run.
    sandbox: the limits and libraries of sandboxed programs.
    clock: schedules the delivery of tool outputs within steps, so that runs
      are reproducible. Evaluations use another event loop and take outputs as
      soon as they arrive.
    records: the system's own files in the run's folder. Write data there that
      is made once and that a resumed run must read again.
    templates: the user's prompts; None if the system writes its own.
    say: prints a status line, on one host.
    now: returns seconds, for metrics.
  """

  seed: int
  steps: int
  jobs: SharedJobs
  executor: Executor
  hosts: Hosts
  tokenizer: Tokenizer
  sandbox: ExecutorSettings
  clock: DecodeClock = dataclasses.field(default_factory=DecodeClock)
  records: Records = Records(None, None)
  templates: Templates | None = None
  say: Callable[[str], None] = console.print_status
  now: Callable[[], float] = time.monotonic

  def prompt_format(self, name: str) -> PromptFormat:
    """Returns the user's prompts, or the name of a built-in format."""
    return self.templates or name


@dataclasses.dataclass(frozen=True)
class StepLoad:
  """How much one training step samples and trains on, for cost estimates.

  Attributes:
    phases: (prompts, completions per prompt) of each phase. Prompts of a later
      phase depend on completions of the first.
    trained: the number of completions in the update.
  """

  phases: tuple[tuple[int, int], ...]
  trained: int

  @classmethod
  def of_groups(cls, prompts: int, group_size: int) -> Self:
    """Returns the load of a step that trains on all responses."""
    return cls(((prompts, group_size),), prompts * group_size)

  @property
  def sequences(self) -> int:
    """The number of sampled completions."""
    return sum(prompts * samples for prompts, samples in self.phases)

  @property
  def prompts(self) -> int:
    """The number of prefills: one per prompt, shared by its samples."""
    return sum(prompts for prompts, _ in self.phases)


@dataclasses.dataclass(frozen=True)
class SuggestedScoring:
  """The `azr_jax.evaluate` arguments that show what a run has learned.

  Attributes:
    variant: a variant of `configs/evaluate.py`.
    benchmark: the value of `--benchmark`: one or more names.
    data: the value of `--data`; empty if the benchmark needs no data.
    note: a hint printed with the command; may be empty.
  """

  variant: str
  benchmark: str
  data: str = ""
  note: str = ""


@dataclasses.dataclass(frozen=True)
class NoSettings(settings_lib.Settings):
  """The config section of a system that has no settings."""


@dataclasses.dataclass(frozen=True)
class About:
  """Facts about a system with given settings, such as compile_check needs.

  Attributes:
    paper: title and URL of the paper that the system follows, if any.
    metrics: {metric family: description of a healthy value}, for families that
      only this system has.
    load: prompts and responses of a step; None if unknown.
    scoring: a suggested command that scores a finished run. It is only printed.
    can_pause: whether a step resumes groups that the previous step paused
      (`groups.py`, `partial.py`).
    fixed_keys: config keys that must not change on resume, in addition to those
      of every run. Example: `train.steps` for a schedule over all steps.
    has_evaluation: whether `evaluate` has data to score.
    evaluation_keys: config keys that provide such data; one must be set.
  """

  paper: tuple[str, str] | None = None
  metrics: Mapping[str, str] = dataclasses.field(default_factory=dict)
  load: StepLoad | None = None
  scoring: SuggestedScoring | None = None
  can_pause: bool = False
  fixed_keys: Sequence[str] = ()
  has_evaluation: bool = False
  evaluation_keys: Sequence[str] = ()


class System(abc.ABC):
  """Makes graded trajectories with a policy, step by step.

  Some commands need further methods. They define a protocol next to the
  command: `trainer/periodic_evals.py`, `azr_jax/lab/data/select_problems.py`.

  Attributes:
    name: the name of the config section, also used in metric names.
    Settings: the class of the config section.
    settings: the values of the config section.
    context: the resources of the run.
  """

  name: ClassVar[str]
  Settings: ClassVar[type[settings_lib.Settings]] = NoSettings

  def __init__(self, settings: Any, context: Context):
    self.settings = settings
    self.context = context

  @classmethod
  def about(cls, settings: Any) -> About:
    """Returns facts about the system under these settings."""
    del settings
    return About()

  @classmethod  # noqa: B027 - most systems allow any sampling.
  def check(cls, settings: Any, rollout: SamplerSettings) -> None:
    """Raises `Invalid` if the settings conflict with the sampler's."""

  @classmethod  # noqa: B027 - most systems need nothing else.
  def check_start(cls, settings: Any) -> None:
    """Raises `Invalid` if a setting without a usable default is missing.

    Training data are an example. A config without them can still be listed and
    compiled, so `check` does not require them.
    """

  @classmethod
  def prompt_files(cls, settings: Any) -> PromptFiles:
    """Returns the files that a folder of the user's prompts must have."""
    del settings
    return {}

  @classmethod
  def build(cls, settings: Any, context: Context) -> Self:
    """Returns the system. May read or make data, on the primary host first."""
    return cls(settings, context)

  @abc.abstractmethod
  async def collect(self, policy: Policy, step: int) -> RolloutBatch:
    """Samples and grades the trajectories of a step.

    With `rollout.max_staleness`, several steps are in flight at once. Read
    state that changes between steps before the first await, and update it after
    the last one, which is `await policy.earlier_steps()`. Claim per-step items,
    such as the next problems of an epoch, before the first await.
    """

  def can_sample_ahead(self, step: int) -> bool:
    """Returns whether a step may start while earlier ones are in flight.

    Return False for a step that also samples for another purpose, such as
    measuring pass rates.
    """
    del step
    return True

  def state_dict(self) -> dict[str, Any]:
    """Returns everything that changes from step to step, as JSON values."""
    return {}

  def load_state_dict(  # noqa: B027 - most systems have no state.
    self, state: dict[str, Any]
  ) -> None:
    """Replaces the state by one that `state_dict` returned.

    A resume calls this once for each step in flight, and then once more.
    """

  async def evaluate(
    self, policy: Policy, limit: int, samples: int
  ) -> dict[str, float]:
    """Returns scores on the system's own evaluation data, by name.

    Periodic evaluations call this in addition to the benchmarks of `evals/`.

    Args:
      policy: a policy with the temperature and the random key of evaluations.
      limit: the maximum number of items; 0 means all.
      samples: responses per item.
    """
    del policy, limit, samples
    return {}

  def close(self) -> None:  # noqa: B027 - most systems hold nothing.
    """Stops processes and threads that the system started."""
