"""The interface of a system: it makes trajectories with a policy.

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
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from azr_jax.config import settings as settings_lib
from azr_jax.executor import Executor
from azr_jax.executor.settings import ExecutorSettings
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.decode_clock import DecodeClock
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.policy import Agent, Policy
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.run.records import Records
from azr_jax.types import RolloutBatch


@dataclasses.dataclass(frozen=True)
class Context:
  """The arguments from which a system is built.

  Attributes:
    seed: seed for all random draws on the host.
    steps: training steps of the whole run, for schedules.
    jobs: runs executor jobs, distributed over the hosts.
    executor: this host's executor, for environments that submit jobs.
    hosts: the processes of the run.
    tokenizer: the tokenizer of the model.
    sandbox: what programs may use.
    clock: says when the outputs of tools are taken in steps. Evaluations have
      another event loop, and so take outputs when they are there.
    records: the system's own files in the run's folder, for what is made once
      and read by a resumed run.
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


@dataclasses.dataclass(frozen=True)
class StepLoad:
  """How much one training step samples and trains on, for estimates.

  Attributes:
    phases: prompts, and completions of each; a prompt of a later phase follows
      from one of the first phase.
    trained: completions that are trained on.
  """

  phases: tuple[tuple[int, int], ...]
  trained: int

  @classmethod
  def of_groups(cls, prompts: int, group_size: int) -> Self:
    """Returns the load of a step that trains on all responses to its prompts.

    Args:
      prompts: how many there are.
      group_size: responses to each.
    """
    return cls(((prompts, group_size),), prompts * group_size)

  @property
  def sequences(self) -> int:
    """Completions that are sampled."""
    return sum(prompts * samples for prompts, samples in self.phases)

  @property
  def prompts(self) -> int:
    """Prompts that are prefilled, each once for all its samples."""
    return sum(prompts for prompts, _ in self.phases)


@dataclasses.dataclass(frozen=True)
class SuggestedScoring:
  """The arguments of `azr_jax.evaluate` that show what a run has learned.

  Attributes:
    variant: a variant of `configs/evaluate.py`.
    benchmark: name or names, as `--benchmark` takes them.
    data: the value of `--data`; "": the benchmark needs none.
    note: what the user must know to run it; "": nothing.
  """

  variant: str
  benchmark: str
  data: str = ""
  note: str = ""


@dataclasses.dataclass(frozen=True)
class NoSettings(settings_lib.Settings):
  """The config section of a system that has no settings."""


class System(abc.ABC):
  """Makes graded trajectories with a policy, step by step.

  Attributes:
    name: the name of its config section, and its part of metric names.
    Settings: the class of its config section.
    METRICS: {metric family: what a healthy value looks like}, for families
      that only this system has.
    PAPER: title and address of the paper that it follows; None: there is none.
    can_pause: whether it goes on with groups that the step before has paused
      (`rollout/partial_rollouts.py`), as `partial.gather` gives them.
    evaluation_keys: the keys, one of which gives it evaluation data of its
      own.
    settings: its config section.
    context: the arguments from which it was built.
  """

  name: ClassVar[str]
  Settings: ClassVar[type[settings_lib.Settings]] = NoSettings
  METRICS: ClassVar[Mapping[str, str]] = {}
  PAPER: ClassVar[tuple[str, str] | None] = None
  can_pause: ClassVar[bool] = False
  evaluation_keys: ClassVar[tuple[str, ...]] = ()

  def __init__(self, settings: Any, context: Context):
    self.settings = settings
    self.context = context

  @classmethod
  def build(cls, settings: Any, context: Context) -> Self:
    """Returns the system; may read or make data, on the primary host first."""
    return cls(settings, context)

  @abc.abstractmethod
  async def collect(self, policy: Policy, step: int) -> RolloutBatch:
    """Samples, grades and returns the trajectories of a step.

    With `rollout.max_staleness`, several steps are under way. So it reads what
    changes from step to step before its first await, and changes it after its
    last one. What no other step may have, such as the next problems of an
    epoch, it takes from the state before its first await.
    """

  def can_sample_ahead(self, step: int) -> bool:
    """Returns whether a step may begin while earlier ones are under way.

    It may not if it samples for other ends than its trajectories, such as to
    measure the policy.
    """
    del step
    return True

  def state_dict(self) -> dict[str, Any]:
    """Returns everything that changes from step to step, as JSON values."""
    return {}

  def load_state_dict(  # noqa: B027 - most systems have no state.
    self, state: dict[str, Any]
  ) -> None:
    """Restores what `state_dict` returned."""

  @classmethod  # noqa: B027 - most systems allow any sampling.
  def check(cls, settings: Any, rollout: SamplerSettings) -> None:
    """Raises `Invalid` if settings contradict those of sampling."""

  @classmethod
  def fixed_keys(cls, settings: Any) -> Sequence[str]:
    """Returns keys of shared settings that a resumed run of it must not change.

    They are of those that other runs may change, such as `train.steps` for a
    schedule over all steps.
    """
    del settings
    return ()

  @classmethod  # noqa: B027 - most systems need nothing else.
  def check_start(cls, settings: Any) -> None:
    """Raises `Invalid` if a run lacks what no default can name, such as data.

    A config without it can still be listed and compiled.
    """

  def close(self) -> None:  # noqa: B027 - most systems hold nothing.
    """Ends what the system has started, at the end of a run."""

  @classmethod
  def has_evaluation(cls, settings: Any) -> bool:
    """Returns whether `evaluate` has something to evaluate."""
    del settings
    return False

  async def evaluate(
    self, policy: Policy, limit: int, samples: int
  ) -> dict[str, float]:
    """Returns scores on evaluation data of the system's own, by name.

    Periodic evaluations call it; the benchmarks of `evals/` are scored besides.

    Args:
      policy: with the temperature and the random key of evaluations.
      limit: maximum number of items; 0: all.
      samples: responses per item.
    """
    del policy, limit, samples
    return {}

  def benchmark_agent(self, benchmark: str) -> Agent | None:
    """Returns the agent that answers a benchmark in periodic evaluations.

    None: the policy answers alone, in one turn.
    """
    del benchmark
    return None

  def solver_prompt(self, task_type: str, task: Any) -> str | None:
    """Returns the prompt with which training asks a program task.

    None: this system solves no program tasks.

    Args:
      task_type: a type of `tasks/programs/task.py`.
      task: a task of `tasks/programs/task.py`.
    """
    del task_type, task
    return None

  @classmethod
  def step_load(cls, settings: Any) -> StepLoad | None:
    """Returns the prompts and responses of a step; None: they are unknown."""
    return None

  @classmethod
  def suggested_scoring(cls, settings: Any) -> SuggestedScoring | None:
    """Returns the scoring to suggest at the end of a run, if any.

    It is a command for the user, which no run executes; `evaluate` is what runs
    during training.
    """
    return None

  @classmethod
  def pass_rates(
    cls, settings: Any, state: dict[str, Any]
  ) -> Sequence[tuple[Any, float]]:
    """Returns the problems that a run sampled, with their last pass rates.

    Args:
      settings: of the run.
      state: what `state_dict` returned at its last checkpoint.

    Raises:
      ValueError: this system keeps no pass rates.
    """
    raise ValueError(
      f"a run of system {cls.name!r} keeps no pass rates: expected a run of "
      "configs/orz.py"
    )
