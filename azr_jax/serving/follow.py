"""Follows a run: its newest checkpoint is served while it trains.

A thread looks for checkpoints and reads them, and the worker puts them in use
between two calls of the decode loop. For a moment there are two copies of the
weights. Nothing is written to the run's folder.
"""

import pathlib
import threading
from collections.abc import Callable

from azr_jax import types
from azr_jax.run import checkpoint_reading
from azr_jax.run.console import print_status
from azr_jax.serving.decoding import DecodeWorker

# Between two looks, after several that failed.
_MAX_PAUSE_S = 300.0


def wait_for_step(folder: pathlib.Path, poll_s: float) -> int:
  """Returns the step of a run's newest checkpoint; waits for the first one.

  Args:
    folder: of the run, which may have to begin.
    poll_s: seconds between two looks.
  """
  pause, is_told = threading.Event(), False
  while not (step := checkpoint_reading.newest_step(folder)):
    if not is_told:
      print_status(f"waiting for the first checkpoint in {folder}")
    is_told = True
    pause.wait(poll_s)
  return step


class Follower:
  """Gives a worker each newer checkpoint of a run."""

  def __init__(
    self,
    folder: pathlib.Path,
    worker: DecodeWorker,
    load: Callable[[int], types.Params],
    poll_s: float,
  ):
    """Does nothing until `start`.

    Args:
      folder: of the run.
      worker: samples, with the weights of an earlier step.
      load: step -> training parameters.
      poll_s: seconds between two looks.
    """
    self._folder, self._worker = folder, worker
    self._load, self._poll_s = load, poll_s
    self._is_over = threading.Event()
    self._thread = threading.Thread(
      target=self._follow, name="follow", daemon=True
    )

  def start(self) -> None:
    """Begins to look for checkpoints."""
    self._thread.start()

  def stop(self) -> None:
    """Ends after what is being read."""
    self._is_over.set()

  def _follow(self) -> None:
    pause_s = self._poll_s
    while not self._is_over.wait(pause_s):
      try:
        self._look()
        pause_s = self._poll_s
      # A run deletes old checkpoints, and a store may be out of reach, so the
      # weights that are served stay until a later look succeeds.
      except Exception as error:  # noqa: BLE001 - any would end the thread.
        pause_s = max(self._poll_s, min(2 * pause_s, _MAX_PAUSE_S))
        line = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        print_status(
          f"step {self._worker.step} is served on; the next look is in "
          f"{pause_s:g} s: {line}"
        )

  def _look(self) -> None:
    """Puts the newest checkpoint in use if it is newer than what is served."""
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
    print_status(f"step {step} is served, after step {served}")
