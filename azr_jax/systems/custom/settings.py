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
  """The settings of the system; `TableSettings` configures the data."""

  reward: str = setting(
    "",
    "comma-separated rewards: FILE.py:NAME, MODULE:NAME or judge, each with an "
    "optional weight, as in 0.1*FILE.py:NAME",
  )
  where: str = setting(
    PROCESS,
    "where functions run: process (unsandboxed) or executor (sandboxed, with "
    "executor.libraries; FILE.py:NAME only)",
    choices=PLACES,
    expert=True,
  )
  timeout_s: float = setting(
    10.0, "timeout of a reward call in a process, seconds", above=0
  )
  memory_gib: float = setting(
    2.0,
    "memory limit of a reward process with its children, GiB resident; "
    "0 means no limit",
    minimum=0,
    expert=True,
  )
  workers: int = setting(
    2, "reward processes on each host", minimum=1, expert=True
  )
  concurrency: int = setting(
    32,
    "concurrent calls of coroutine functions per process",
    minimum=1,
    expert=True,
  )
  on_failure: str = setting(
    ZERO,
    "how to treat a failed reward: count it as 0, as verifiers does, or drop "
    "its response from the step",
    choices=ON_FAILURE,
    expert=True,
  )
  judge: JudgeSettings = JudgeSettings()
  prompts: int = setting(32, "prompts per step", minimum=1)
  group_size: int = setting(8, "responses to each prompt", minimum=1)
  curriculum: str = setting(
    EPOCHS,
    "how prompts are chosen: epochs over all rows, uniform draws, adaptive "
    "(the bucket nearest a target pass rate), or a bandit over buckets",
    choices=CURRICULA,
    or_named=curriculum.load,
  )
  bucket_column: str = setting(
    "", "column whose values define buckets; empty uses the sources of data"
  )
  adaptive: AdaptiveSettings = AdaptiveSettings()
  bandit: BanditSettings = BanditSettings()
  replay: ReplaySettings = ReplaySettings()
  dynamic_sampling: DynamicSamplingSettings = DynamicSamplingSettings()
  eval_data: str = setting(
    "", "evaluation rows for evaluation.every, in the format of data"
  )
  eval_fraction: float = setting(
    0.0,
    "fraction of the rows of data to hold out for evaluation.every",
    minimum=0,
    below=1,
  )

  def check(self) -> None:
    """Rejects groups of one where groups are compared, and two eval splits."""
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
        "because epochs visit each row once",
      )
    if self.eval_data and self.eval_fraction:
      raise self.invalid("eval_fraction", "0 with eval_data; set only one")
