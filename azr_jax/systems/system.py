"""What a system is to the trainer: a way to make trajectories of a policy.

A system is one class, in a package of this folder or anywhere else:

  class Palindromes(System):
    name = "palindromes"
    Settings = PalindromeSettings

    def collect(self, policy, step):
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
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.policy import Policy
from azr_jax.rollout.settings import SamplerSettings
from azr_jax.types import RolloutBatch


@dataclasses.dataclass(frozen=True)
class Context:
  """What the trainer gives a system to be built with.

  Attributes:
    seed: root of every random draw on the host.
    steps: training steps of the whole run, for schedules.
    jobs: runs executor jobs, shared out over the hosts.
    executor: this host's executor, for environments with jobs of their own.
    hosts: the processes of the run.
    tokenizer: the model's.
    script_timeout_s: wall clock that the executor allows a program, seconds.
  """

  seed: int
  steps: int
  jobs: SharedJobs
  executor: Executor
  hosts: Hosts
  tokenizer: Tokenizer
  script_timeout_s: float


@dataclasses.dataclass(frozen=True)
class StepLoad:
  """How much one training step samples and learns, for forecasts.

  Attributes:
    sequences: completions that are sampled.
    trained: completions that are learned from.
    prompts: prompts that are prefilled; a prompt's samples share it.
  """

  sequences: int
  trained: int
  prompts: int


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """The evaluation that shows what a run has learned.

  Attributes:
    variant: of `configs/evaluate.py`.
    benchmark: name or names, as `--benchmark` takes them.
    data: as `--data` takes it; "" where the benchmark needs none.
  """

  variant: str
  benchmark: str
  data: str = ""


class System(abc.ABC):
  """Turns a policy into graded trajectories, step by step.

  Attributes:
    name: its config section and the part of metric names that is its own.
    Settings: the class of its config section.
    METRICS: {metric family: what a healthy value looks like}, for families
      that are this system's alone.
  """

  name: ClassVar[str]
  Settings: ClassVar[type[settings_lib.Settings]] = settings_lib.Settings
  METRICS: ClassVar[Mapping[str, str]] = {}

  def __init__(self, settings: Any, context: Context):
    self.settings = settings
    self.context = context

  @classmethod
  def build(cls, settings: Any, context: Context) -> Self:
    """Makes the system; the place to read data, on the primary host first."""
    return cls(settings, context)

  @abc.abstractmethod
  def collect(self, policy: Policy, step: int) -> RolloutBatch:
    """Samples, grades and returns the trajectories of a step."""

  def state_dict(self) -> dict[str, Any]:
    """Returns everything that changes from step to step, as JSON values."""
    return {}

  def load_state_dict(  # noqa: B027 - most systems have no state.
    self, state: dict[str, Any]
  ) -> None:
    """Restores what `state_dict` returned."""

  @classmethod  # noqa: B027 - most systems go with any sampling.
  def check(cls, settings: Any, rollout: SamplerSettings) -> None:
    """Checks how settings go with those of sampling; raises `Invalid`."""

  @classmethod
  def step_load(cls, settings: Any) -> StepLoad | None:
    """Returns what a step samples and learns; None where it is not known."""
    return None

  @classmethod
  def evaluation(cls, settings: Any) -> Evaluation | None:
    """Returns the evaluation to suggest at the end of a run, if any."""
    return None

  @classmethod
  def pass_rates(
    cls, settings: Any, state: dict[str, Any]
  ) -> Sequence[tuple[Any, float]]:
    """Returns the problems that a run asked, with their last pass rates.

    Raises:
      ValueError: this system keeps none.
    """
    raise ValueError(
      f"a run of system {cls.name!r} keeps no pass rates: expected a run of "
      "configs/orz.py"
    )
