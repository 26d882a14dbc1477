"""When a run saves a checkpoint, and when it stops.

A preempted machine often gives less notice than a step takes, so a run with
long steps saves by the clock too.
"""

import dataclasses
import time

from azr_jax.run.session import Run


@dataclasses.dataclass(frozen=True)
class StepEnd:
  """What follows a step: whether it is saved, and whether the run stops."""

  save: bool
  stop: bool


class SaveSchedule:
  """Decides after each step, alike on all hosts."""

  def __init__(
    self, run: Run, steps: int, save_every: int, save_minutes: float
  ):
    """Starts the clock.

    Args:
      run: the run, whose hosts agree.
      steps: the last step, after which the run stops.
      save_every: steps between checkpoints.
      save_minutes: minutes after the last save at which another is due.
    """
    self._run = run
    self._steps = steps
    self._save_every, self._save_minutes = save_every, save_minutes
    self._saved_at = time.monotonic()

  def at_end_of(self, step: int) -> StepEnd:
    """Returns what follows a step; all hosts must call it after each step.

    It also waits for the step's update on the device where there are several
    hosts.
    """
    minutes = (time.monotonic() - self._saved_at) / 60
    is_due = step % self._save_every == 0 or minutes >= self._save_minutes
    stop, save = self._run.any_host(
      f"end of step {step}",
      step == self._steps or self._run.preempted.is_set(),
      is_due,
    )
    if stop or save:
      self._saved_at = time.monotonic()
    return StepEnd(stop or save, stop)
