"""Section `train` of a configuration: length, checkpoints, stored texts."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.run.trackers import TrackerSettings


@dataclasses.dataclass(frozen=True)
class TrainingRunSettings(Settings):
  """Length, checkpoints and trackers of any run that trains."""

  steps: int = setting(100, "number of training steps", minimum=1)
  save_every: int = setting(10, "steps between checkpoints", minimum=1)
  save_minutes: float = setting(
    30.0,
    "also save after a step if the last save is this many minutes old",
    above=0,
  )
  keep_checkpoints: int = setting(2, "newest checkpoints to keep", minimum=1)
  checksums: bool = setting(
    True,
    "write checksums into checkpoints, to detect damage",
    expert=True,
  )
  trackers: TrackerSettings = TrackerSettings()


@dataclasses.dataclass(frozen=True)
class RunSettings(TrainingRunSettings):
  """Adds where a run starts from, and which texts it stores."""

  init_from_run: str = setting(
    "", "run folder whose newest checkpoint a new run starts from"
  )
  keep_moments: bool = setting(
    False,
    "also load the optimizer moments of init_from_run, and the average of "
    "distill.teacher=average; schedules start over",
    paper="ORZ: True in annealing, which continues a run",
  )
  samples_per_step: int = setting(
    12, "trajectories stored as text per step", minimum=0, expert=True
  )
  show_every: int = setting(
    10, "steps between sample texts on the terminal; 0: none", minimum=0
  )
  style: str = setting(
    "",
    "rule that names each response's style, for the metrics style/...: "
    "first_word, FILE.py:NAME or MODULE:NAME (evals/styles.py); '': none",
  )
  flag_texts: bool = setting(
    True, "copy texts that deserve human review to flagged/", expert=True
  )
  flag_classifier: str = setting(
    "", "MODULE:FUNCTION that flags texts, besides the rules", expert=True
  )
