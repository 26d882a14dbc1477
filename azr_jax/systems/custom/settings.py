"""Section `custom` of a configuration: data, rewards and curriculum."""

import dataclasses

from azr_jax.config.settings import setting
from azr_jax.curricula import curriculum
from azr_jax.curricula.adaptive import AdaptiveSettings
from azr_jax.curricula.bandit import BanditSettings
from azr_jax.curricula.replay import ReplaySettings
from azr_jax.systems.custom.judge import JudgeSettings
from azr_jax.systems.dynamic_sampling import DynamicSamplingSettings
from azr_jax.tasks.table.settings import TableSettings

EPOCHS, UNIFORM, ADAPTIVE, BANDIT = CURRICULA = (
  "epochs",
  "uniform",
  "adaptive",
  "bandit",
)
PROCESS, EXECUTOR = PLACES = "process", "executor"
ZERO, DROP = ON_FAILURE = "zero", "drop"


@dataclasses.dataclass(frozen=True)
class CustomSettings(TableSettings):
  """The settings of the system; the data's are those of `TableSettings`."""

  reward: str = setting(
    "",
    "comma-separated rewards: FILE.py:NAME, MODULE:NAME or judge, each perhaps "
    "with a weight, as 0.1*FILE.py:NAME",
  )
  where: str = setting(
    PROCESS,
    "where functions run: in processes of the user, or in the sandbox of the "
    "executor, for FILE.py:NAME with the libraries of section executor",
    choices=PLACES,
    expert=True,
  )
  timeout_s: float = setting(
    10.0, "time of a call of a reward in a process, seconds", above=0
  )
  memory_gib: float = setting(
    2.0,
    "resident memory of a process that calls rewards, with its children, GiB; "
    "0: no limit",
    minimum=0,
    expert=True,
  )
  workers: int = setting(
    2, "processes that call rewards, on each host", minimum=1, expert=True
  )
  concurrency: int = setting(
    32,
    "concurrent calls of coroutine functions in a process",
    minimum=1,
    expert=True,
  )
  on_failure: str = setting(
    ZERO,
    "what a failed reward does: counts as 0, as in verifiers; or drops its "
    "response from the step",
    choices=ON_FAILURE,
    expert=True,
  )
  judge: JudgeSettings = JudgeSettings()
  prompts: int = setting(32, "prompts per step", minimum=1)
  group_size: int = setting(8, "responses to each prompt", minimum=1)
  curriculum: str = setting(
    EPOCHS,
    "how a step's prompts are chosen: epochs over all rows, uniform draws, "
    "or a bucket near a target pass rate, or a bandit over buckets",
    choices=CURRICULA,
    or_named=curriculum.load,
  )
  bucket_column: str = setting(
    "", "column whose values are the buckets; '': the sources of data"
  )
  adaptive: AdaptiveSettings = AdaptiveSettings()
  bandit: BanditSettings = BanditSettings()
  replay: ReplaySettings = ReplaySettings()
  dynamic_sampling: DynamicSamplingSettings = DynamicSamplingSettings()
  eval_data: str = setting(
    "", "sources of rows that evaluation.every scores, as those of data"
  )
  eval_fraction: float = setting(
    0.0,
    "fraction of the rows of data that is held out for evaluation.every",
    minimum=0,
    below=1,
  )

  def check(self) -> None:
    """Refuses groups of one where groups are compared, and two splits."""
    if self.curriculum == BANDIT and self.group_size < 2:
      raise self.invalid(
        "group_size",
        f"at least 2 with curriculum={BANDIT!r}, which learns from advantages",
      )
    self.dynamic_sampling.check_groups(self, self.group_size)
    if self.replay.fraction and self.curriculum == EPOCHS:
      raise self.invalid(
        "curriculum",
        f"one of {CURRICULA[1:]} with replay.fraction={self.replay.fraction}, "
        "because epochs have each row once",
      )
    if self.eval_data and self.eval_fraction:
      raise self.invalid("eval_fraction", "0 with eval_data, which is another")
