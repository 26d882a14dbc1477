"""Follows a run: serves its newest checkpoint while it trains.

A thread polls for checkpoints and reads them. The worker switches to them
between two calls of the decode loop. For a moment the machine holds two copies
of the weights. Nothing is written to the run folder.
"""

import pathlib
import threading
from collections.abc import Callable

from azr_jax import types
from azr_jax.run import checkpoint_reading
from azr_jax.run.console import print_status
from azr_jax.serving.decoding import DecodeWorker

# Longest pause between polls, after repeated failures.
_MAX_PAUSE_S = 300.0


def wait_for_step(folder: pathlib.Path, poll_s: float) -> int:
  """Waits for a run's first checkpoint; returns the newest one's step.

  Args:
    folder: the run folder, which may not exist yet.
    poll_s: seconds between polls.
  """
  pause, is_told = threading.Event(), False
  while not (step := checkpoint_reading.newest_step(folder)):
    if not is_told:
      print_status(f"waiting for the first checkpoint in {folder}")
    is_told = True
    pause.wait(poll_s)
  return step


class Follower:
  """Loads each newer checkpoint of a run into a worker."""

  def __init__(
    self,
    folder: pathlib.Path,
    worker: DecodeWorker,
    load: Callable[[int], types.Params],
    poll_s: float,
  ):
    """Does nothing until `start`.

    Args:
      folder: the run folder.
      worker: the worker, which serves an earlier step.
      load: returns the training parameters of a step.
      poll_s: seconds between polls.
    """
    self._folder, self._worker = folder, worker
    self._load, self._poll_s = load, poll_s
    self._is_over = threading.Event()
    self._thread = threading.Thread(
      target=self._follow, name="follow", daemon=True
    )

  def start(self) -> None:
    """Starts polling for checkpoints."""
    self._thread.start()

  def stop(self) -> None:
    """Stops polling after the current read."""
    self._is_over.set()

  def _follow(self) -> None:
    pause_s = self._poll_s
    while not self._is_over.wait(pause_s):
      try:
        self._look()
        pause_s = self._poll_s
      # A run deletes old checkpoints and a store may be unreachable. Keep the
      # current weights until a later poll succeeds.
      except Exception as error:  # noqa: BLE001 - any error ends the thread.
        pause_s = max(self._poll_s, min(2 * pause_s, _MAX_PAUSE_S))
        line = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        print_status(
          f"still serving step {self._worker.step}, next poll in "
          f"{pause_s:g} s: {line}"
        )

  def _look(self) -> None:
    """Loads the newest checkpoint if it is newer than the served one."""
    served = self._worker.step
    if (
      max(checkpoint_reading.finished_steps(self._folder), default=0) <= served
    ):
      return
    step = checkpoint_reading.newest_step(self._folder)
    if step is None or step <= served:
      return
    in_use = self._worker.swap(self._load(step), step)
    while not in_use.wait(self._poll_s):
      if self._is_over.is_set():
        return
    print_status(f"now serving step {step} instead of step {served}")
