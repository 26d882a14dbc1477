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
from azr_jax.rollout.policy import Policy
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
    """Returns the load of a step that trains on all responses."""
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


@dataclasses.dataclass(frozen=True)
class About:
  """Facts about a system with given settings, for the commands around it.

  Attributes:
    paper: title and address of the paper that the system follows, if any.
    metrics: {metric family: what a healthy value looks like}, for families
      that only this system has.
    load: prompts and responses of a step; None if unknown.
    scoring: a command for the user that scores a finished run; no run executes
      it.
    can_pause: whether a step resumes the groups that the previous one has
      paused (`groups.py`, `partial.py`).
    fixed_keys: keys that other runs may change on resume and this one may not,
      such as `train.steps` for a schedule over all steps.
    has_evaluation: whether `evaluate` has something to evaluate.
    evaluation_keys: keys of which one must be set for that.
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

  Commands ask some systems for more, by protocols beside those commands:
  `trainer/periodic_evals.py`, `data/select_problems.py`.

  Attributes:
    name: the name of its config section, and its part of metric names.
    Settings: the class of its config section.
    settings: its config section.
    context: the arguments from which it was built.
  """

  name: ClassVar[str]
  Settings: ClassVar[type[settings_lib.Settings]] = NoSettings

  def __init__(self, settings: Any, context: Context):
    self.settings = settings
    self.context = context

  @classmethod
  def about(cls, settings: Any) -> About:
    """Returns what commands around the system need to know of it."""
    del settings
    return About()

  @classmethod  # noqa: B027 - most systems allow any sampling.
  def check(cls, settings: Any, rollout: SamplerSettings) -> None:
    """Raises `Invalid` if settings contradict those of sampling."""

  @classmethod  # noqa: B027 - most systems need nothing else.
  def check_start(cls, settings: Any) -> None:
    """Raises `Invalid` if a run lacks what no default can name, such as data.

    A config without it can still be listed and compiled.
    """

  @classmethod
  def build(cls, settings: Any, context: Context) -> Self:
    """Returns the system; may read or make data, on the primary host first."""
    return cls(settings, context)

  @abc.abstractmethod
  async def collect(self, policy: Policy, step: int) -> RolloutBatch:
    """Samples, grades and returns the trajectories of a step.

    With `rollout.max_staleness` several steps are in flight. So read what
    changes from step to step before the first await, and change it after the
    last one. Claim what no other step may have, such as the next problems of an
    epoch, before the first await.
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
    """Restores what `state_dict` returned."""

  async def evaluate(
    self, policy: Policy, limit: int, samples: int
  ) -> dict[str, float]:
    """Returns scores on evaluation data of the system's own, by name.

    Periodic evaluations call it; the benchmarks of `evals/` are scored besides.

    Args:
      policy: a policy with the temperature and the random key of evaluations.
      limit: maximum number of items; 0: all.
      samples: responses per item.
    """
    del policy, limit, samples
    return {}

  def close(self) -> None:  # noqa: B027 - most systems hold nothing.
    """Ends what the system has started, at the end of a run."""
