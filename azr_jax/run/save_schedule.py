"""Decides when a run saves a checkpoint, and when it stops.

A preempted machine often gives less notice than a step takes, so runs with long
steps also save by the clock.
"""

import dataclasses
import time

from azr_jax.run.session import Run


@dataclasses.dataclass(frozen=True)
class StepEnd:
  """The decision after a step: whether to save, and whether to stop."""

  save: bool
  stop: bool


class SaveSchedule:
  """Decides after each step whether to save. All hosts decide the same."""

  def __init__(
    self, run: Run, steps: int, save_every: int, save_minutes: float
  ):
    """Starts the clock.

    Args:
      run: the run, whose hosts agree on each decision.
      steps: the last step, after which the run stops.
      save_every: steps between checkpoints.
      save_minutes: minutes after the last save when the next one is due.
    """
    self._run = run
    self._steps = steps
    self._save_every, self._save_minutes = save_every, save_minutes
    self._saved_at = time.monotonic()

  def at_end_of(self, step: int) -> StepEnd:
    """Decides what follows a step. All hosts must call this after each step.

    With several hosts, it also waits for the step's update on the device.
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
