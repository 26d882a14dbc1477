"""Writes a step's metrics and texts while the next step runs."""

import functools
import pathlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from azr_jax import types
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import console, first_values, nonfinite
from azr_jax.run import metrics as metrics_lib
from azr_jax.run.trackers import Trackers, TrackerSettings
from azr_jax.types import RolloutBatch

FETCHER = "fetch of an update's metrics"
# At exit, how long to wait for an update that started before an error.
EXIT_TIMEOUT_S = 120.0


def fetch(metrics: types.Metrics) -> "Future[tuple[dict[str, float], float]]":
  """Returns the future of an update's metrics and its completion time.

  A thread fetches them, so the host can continue with the next step.

  Args:
    metrics: scalars on the device.
  """
  future: Future[tuple[dict[str, float], float]] = Future()

  def wait() -> None:
    try:
      with jax.profiler.TraceAnnotation("update"):
        fetched = metrics_lib.to_host(jax.device_get(metrics))
      future.set_result((fetched, time.monotonic()))
    except Exception as error:  # noqa: BLE001 - `result()` raises it.
      future.set_exception(error)

  # A daemon thread, because an update that waits for a lost host must not keep
  # the process from ending.
  threading.Thread(target=wait, daemon=True, name=FETCHER).start()
  return future


def await_fetches() -> None:
  """Waits for pending fetches of updates, but not forever for a lost host.

  If a thread is still inside the JAX runtime when the process ends, the process
  is aborted.
  """
  end = time.monotonic() + EXIT_TIMEOUT_S
  for thread in threading.enumerate():
    if thread.name == FETCHER:
      thread.join(max(0.0, end - time.monotonic()))


class StepLog:
  """Writes a step's metrics and texts, one step late, on the primary host.

  A context manager. If the loop ends with an error, the last step is still
  written if possible, and a second error never hides the first.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    hosts: Hosts,
    first_step: int,
    *,
    steps: int,
    samples_per_step: int,
    show_every: int,
    trackers: TrackerSettings,
    rows: Sequence[dict[str, Any]] = (),
    may_skip: bool = False,
  ):
    """Opens the files, on the primary host.

    Args:
      folder: the run's folder.
      hosts: the processes of the run.
      first_step: the first step that will be added.
      steps: the last step of the run, for the progress line.
      samples_per_step: the number of trajectories per step to store as text.
      show_every: steps between sample texts on the terminal; 0 for none.
      trackers: settings of the experiment trackers.
      rows: metrics of earlier steps. `metrics.MetricsWriter` restores them if
        the file has lost them.
      may_skip: whether the run continues after an update that was skipped
        because loss or gradients were not finite.
    """
    self._may_skip = may_skip
    self._sees_first_values = first_step == 1
    self._folder = folder
    self._samples_per_step = samples_per_step
    self._show_every = show_every
    self._timeout_s = hosts.timeout_s if hosts.count > 1 else None
    self._writer = None
    if hosts.is_primary:
      self._writer = metrics_lib.MetricsWriter(
        folder,
        first_step,
        rows,
        Trackers(trackers.names, trackers.project, folder),
      )
      self._progress = console.Progress(first_step, steps)
    self._last: Callable[[], None] | None = None

  def __enter__(self) -> "StepLog":
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: object,
  ) -> None:
    del kind, trace
    try:
      self.write_last()
    except Exception as unwritten:
      if error is None:
        raise
      console.print_status(f"the last step is not in the metrics: {unwritten}")
    finally:
      self._close()

  def add(
    self,
    step: int,
    rollouts: RolloutBatch,
    update_metrics: "Future[tuple[dict[str, float], float]]",
    num_compiled: int,
    timings: Callable[[float], dict[str, float]],
  ) -> None:
    """Queues a step, whose update may still be running, for `write_last`.

    Args:
      rollouts: the trajectories and metrics of the step's rollouts.
      update_metrics: the future from `fetch` of its update.
      num_compiled: the number of programs compiled during the step.
      timings: maps the completion time of the update to time and speed metrics.
        Called once, in step order.
    """

    def write() -> None:
      try:
        learner_metrics, done_at = update_metrics.result(self._timeout_s)
      except TimeoutError:
        if update_metrics.done():
          raise
        raise TimeoutError(
          f"the update of step {step} was not done in {self._timeout_s:g} s "
          "(hosts.timeout_s): a host is slow or lost; see the logs of all hosts"
        ) from None
      rewards = [t.reward for t in rollouts.trajectories]
      nonfinite.check(step, learner_metrics, self._may_skip, rewards)
      if self._writer is None:
        return
      self._warn_of_first_values(rollouts, learner_metrics)
      metrics = rollouts.metrics | learner_metrics | timings(done_at)
      metrics["compile/count"] = float(num_compiled)
      self._writer.write(step, metrics)
      metrics_lib.write_samples(
        self._folder,
        step,
        rollouts.trajectories,
        self._samples_per_step,
      )
      self._progress.show(step, _summary(metrics))
      every = self._show_every
      if every and step % every == 0 and rollouts.trajectories:
        _show(rollouts.trajectories)

    self._last = write

  @functools.partial(jax.profiler.annotate_function, name="log")
  def write_last(self, flush: bool = False) -> None:
    """Writes the step added last, unless it is already written.

    Args:
      flush: whether to write out buffers, so that a checkpoint is not ahead of
        the metrics.

    Raises:
      TimeoutError: the update is not done, because a host is slow or lost.
      RuntimeError: a value of the step is not finite.
    """
    if self._last is not None:
      last, self._last = self._last, None
      last()
    if flush and self._writer is not None:
      self._writer.flush()

  def _warn_of_first_values(
    self, rollouts: RolloutBatch, learner_metrics: dict[str, float]
  ) -> None:
    """Warns of implausible values in the first step that has a reward."""
    rewards = [t.reward for t in rollouts.trajectories]
    if not self._sees_first_values or not any(rewards):
      return
    self._sees_first_values = False
    text = first_values.warning(learner_metrics, rewards)
    if text is not None:
      console.print_status(text)

  def write_scores(self, step: int, scores: dict[str, float]) -> None:
    """Writes the scores of the final policy, after its last step.

    Args:
      step: the step after the last, because scores belong to the policy before
        a step.
      scores: scores by metric name. Nothing is written if there are none.
    """
    if self._writer is not None and scores:
      self._writer.write(step, scores)

  def take_rows(self) -> list[dict[str, Any]]:
    """Returns the metrics since the last call, for a checkpoint."""
    return [] if self._writer is None else self._writer.take_rows()

  def _close(self) -> None:
    await_fetches()
    if self._writer is not None:
      self._progress.close()
      self._writer.close()


def _show(trajectories: Sequence[types.Trajectory]) -> None:
  """Prints the response with the largest reward of a step."""
  best = max(trajectories, key=lambda t: t.reward)
  role = metrics_lib.role_of(best) or "this step"
  title = f"  a response of {role} (reward {best.reward:g}):"
  console.show_text(title, best.completion.text)


def _summary(metrics: dict[str, float]) -> str:
  """Returns accuracy, valid proposals and entropy, for the progress line.

  Shows the mean reward instead if no metric counts correct answers.
  """
  correct = [
    value
    for name, value in metrics.items()
    if name.startswith("correct/") and name.endswith("/mean")
  ]
  valid = [v for k, v in metrics.items() if k.endswith("/valid_fraction")]
  solved = f"solved {np.mean(correct or [0]):.0%}"
  rewards = [
    v
    for k, v in metrics.items()
    if k.startswith("reward/") and k.endswith("/solve/mean")
  ]
  if rewards and not correct:
    solved = f"reward {np.mean(rewards):.3f}"
  proposed = f"valid {np.mean(valid):.0%}  " if valid else ""
  return f"{solved}  {proposed}entropy {metrics['learner/entropy']:.2f}"
