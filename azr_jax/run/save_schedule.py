"""When a run saves a checkpoint, and when it stops.

A preempted machine often gives less notice than a step takes, so a run with
long steps saves by the clock too.
"""

import dataclasses
import time

from azr_jax.run.session import Run
from azr_jax.run.settings import TrainingRunSettings


@dataclasses.dataclass(frozen=True)
class StepEnd:
  """What follows a step: whether it is saved, and whether the run stops."""

  save: bool
  stop: bool


class SaveSchedule:
  """Decides after each step, alike on all hosts."""

  def __init__(self, settings: TrainingRunSettings, run: Run):
    """Starts the clock.

    Args:
      settings: the run's length, and how often it saves.
      run: the run, whose hosts agree.
    """
    self._settings = settings
    self._run = run
    self._saved_at = time.monotonic()

  def at_end_of(self, step: int) -> StepEnd:
    """Returns what follows a step; all hosts must call it after each step.

    It also waits for the step's update on the device where there are several
    hosts.
    """
    c = self._settings
    minutes = (time.monotonic() - self._saved_at) / 60
    is_due = step % c.save_every == 0 or minutes >= c.save_minutes
    stop, save = self._run.any_host(
      f"end of step {step}",
      step == c.steps or self._run.preempted.is_set(),
      is_due,
    )
    if stop or save:
      self._saved_at = time.monotonic()
    return StepEnd(stop or save, stop)
