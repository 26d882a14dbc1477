"""A step's metrics and texts, written once the next step is under way."""

import pathlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import jax
import ml_collections
import numpy as np

from azr_jax.learner import update
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import metrics as metrics_lib
from azr_jax.types import RolloutBatch


def fetch(metrics: update.Metrics) -> "Future[tuple[dict[str, float], float]]":
  """An update's metrics, and when it was done."""
  future: Future[tuple[dict[str, float], float]] = Future()

  def wait() -> None:
    try:
      fetched = metrics_lib.to_host(jax.device_get(metrics))
      future.set_result((fetched, time.monotonic()))
    except Exception as error:  # noqa: BLE001 - whoever waits must hear of it.
      future.set_exception(error)

  # A daemon: an update that waits for a lost host must not hold up the end.
  threading.Thread(target=wait, daemon=True).start()
  return future


class StepLog:
  """Writes a step's metrics and samples, one step late, on the first host."""

  def __init__(
    self,
    folder: pathlib.Path,
    first_step: int,
    settings: ml_collections.ConfigDict,
    hosts: Hosts,
  ):
    """Opens the files, on the first host.

    Args:
      folder: of the run.
      first_step: that will be added.
      settings: `train` of a configuration.
      hosts: of the run.
    """
    self._folder = folder
    self._samples = settings.samples_per_step
    self._timeout_s = hosts.timeout_s if hosts.count > 1 else None
    self._writer = None
    if hosts.is_primary:
      self._writer = metrics_lib.MetricsWriter(folder, first_step)
    self._progress = metrics_lib.Progress(first_step, settings.steps)
    self._last: Callable[[], None] | None = None

  def add(
    self,
    step: int,
    collected: RolloutBatch,
    learned: "Future[tuple[dict[str, float], float]]",
    compiled: int,
    start: float,
    collected_at: float,
  ) -> None:
    """Keeps a step, whose update may still be running, for `write_last`."""

    def write() -> None:
      learner_metrics, done_at = learned.result(self._timeout_s)
      if self._writer is None:
        return
      metrics = collected.metrics | learner_metrics
      metrics["time/collect"] = collected_at - start
      metrics["time/update"] = done_at - collected_at
      metrics["time/step"] = done_at - start
      metrics["compile/count"] = float(compiled)
      self._writer.write(step, metrics)
      metrics_lib.write_samples(
        self._folder, step, collected.trajectories, self._samples
      )
      self._progress.show(step, _summary(metrics))

    self._last = write

  def write_last(self, flush: bool = False) -> None:
    """Writes the step that was added last, if it is not yet written.

    Args:
      flush: so that a checkpoint is not ahead of the metrics.
    """
    if self._last is not None:
      last, self._last = self._last, None
      last()
    if flush and self._writer is not None:
      self._writer.flush()

  def close(self) -> None:
    """Writes what is left, also when the loop ends by an error."""
    self.write_last()
    if self._writer is not None:
      self._writer.close()


def _summary(metrics: dict[str, float]) -> str:
  """The few figures worth a line: solver accuracy, valid proposals."""
  correct = [
    value
    for name, value in metrics.items()
    if name.startswith("correct/") and name.endswith("/mean")
  ]
  valid = [v for k, v in metrics.items() if k.endswith("/valid_share")]
  proposed = f"valid {np.mean(valid):.0%}  " if valid else ""
  return (
    f"solved {np.mean(correct or [0]):.0%}  {proposed}"
    f"entropy {metrics['learner/entropy']:.2f}"
  )
