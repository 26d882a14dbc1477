"""Section `train` of a configuration: a run's length, and what it keeps."""

import dataclasses

from azr_jax.config.settings import Settings, setting
from azr_jax.run.trackers import TrackerSettings


@dataclasses.dataclass(frozen=True)
class TrainingRunSettings(Settings):
  """Length, checkpoints and trackers of any run that trains."""

  steps: int = setting(100, "training steps", minimum=1)
  save_every: int = setting(10, "steps between checkpoints", minimum=1)
  save_minutes: float = setting(
    30.0,
    "also save at the end of the first step this many minutes after the last "
    "save",
    above=0,
  )
  keep_checkpoints: int = setting(2, "newest checkpoints to keep", minimum=1)
  checksums: bool = setting(
    True,
    "write checksums into checkpoints, so that damage is found",
    expert=True,
  )
  trackers: TrackerSettings = TrackerSettings()


@dataclasses.dataclass(frozen=True)
class RunSettings(TrainingRunSettings):
  """Where a run starts, besides, and the texts that are kept."""

  init_from_run: str = setting(
    "", "run folder whose newest checkpoint training starts from, once"
  )
  keep_moments: bool = setting(
    False,
    "start with the optimizer's moments of init_from_run too; rates start over",
    paper="ORZ: True in annealing, which continues a run",
  )
  samples_per_step: int = setting(
    12, "trajectories whose texts are kept, per step", minimum=0, expert=True
  )
  show_every: int = setting(
    10, "steps between texts on the terminal; 0: none", minimum=0
  )
  flag_texts: bool = setting(
    True, "copy the texts that a person should read into flagged/", expert=True
  )
  flag_classifier: str = setting(
    "", "MODULE:FUNCTION that flags texts besides the rules", expert=True
  )
