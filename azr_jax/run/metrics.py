"""Writes the metrics and sampled texts of a run.

A metric's name is a path whose first part is its family. `HEALTHY` describes
healthy values of each family. Families of only one system are in its
`About.metrics`.
"""

import importlib
import itertools
import json
import math
import pathlib
import re
import sys
import time
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from azr_jax import types
from azr_jax.run import storage
from azr_jax.run.console import print_status
from azr_jax.run.trackers import Trackers

# Names in a run's folder: the metrics file, and the folder of sampled texts.
METRICS = "metrics.jsonl"
SAMPLES = "samples"
# Seconds between writes of the metrics to an object store.
STORE_WRITE_S = 30.0
# Metric family -> what a healthy value looks like.
HEALTHY = {
  "reward": "rises; propose stays below solve once tasks are learnable",
  "tokens": "completion tokens; truncated_fraction near 0",
  "count": "trajectories per role, and prompts that were too long",
  "correct": "rises for every task type; timeout_fraction and lost_fraction "
  "near 0",
  "formatted": "above 0.95 after a few steps",
  "executor": "verdict counts; timeouts rare",
  "rollout": "logprob_gap, its p50, p99 and max below 1e-3 in float32 on a CPU "
  "(p99 0.02 on an H100); "
  "staleness/max at most rollout.max_staleness; partial/budgets 1",
  "learner": "entropy falls slowly; grad_norm without spikes; skipped 0; "
  "correction/effective_fraction near 1; expert_load, the busiest expert's "
  "tokens over the mean, does not grow (1 is even); updates, the optimizer "
  "steps of a pass, is learner.minibatches; kl_penalty, the mean that rewards "
  "lose with learner.kl_in=reward, grows slowly",
  "distill": "fraction of the tokens that a teacher reads, well above 0; loss, "
  "the divergence from the teacher, falls; gain, what the teacher thinks of "
  "the sampled tokens, rises",
  "time": "seconds per phase; verdict_wait near 0",
  "groups": "equal_fraction, dropped_fraction: zero-advantage groups, well "
  "below 1",
  "dynamic_sampling": "no_signal_fraction near 0; dropped_fraction far below 1",
  "shaping": "overlong_fraction and masked_fraction near 0",
  "critic": "value_loss falls; explained_variance rises above 0; skipped 0",
  "evaluation": "pass@1 rises",
  "style": "with train.style: fraction of each style and the reward within it; "
  "a reward that rises only because fractions change is a habit",
  "safety": "flagged_fraction near 0; read the texts in flagged/",
  "compile": "programs compiled in the step: 0 after the first",
  "device": "mfu, bandwidth_fraction, live_slots_fraction high; "
  "idle_fraction low",
}
# Characters that a part of a metric name must not contain.
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")
# Metrics of the machine, not of what was learned. They differ between two runs
# that learn the same.
MACHINE_METRICS = ("time/", "compile/", "device/")


def plain_name(name: str) -> str:
  """Returns a name in which characters invalid in metric names become _."""
  return _NOT_IN_NAMES.sub("_", name)


def role_of(trajectory: types.Trajectory) -> str:
  """Returns the texts in a trajectory's group, such as `deduction/solve`.

  "" for a group that is no tuple, which may name a prompt.
  """
  group = trajectory.group_id
  parts = group if isinstance(group, tuple) else ()
  return "/".join(plain_name(part) for part in parts if isinstance(part, str))


def to_host(metrics: Mapping[str, object]) -> dict[str, float]:
  """Returns fetched device scalars as plain floats."""
  return {name: float(np.asarray(value)) for name, value in metrics.items()}


class MetricsWriter:
  """Writes one JSON object per step, and TensorBoard events.

  In an object store there are no events, and objects are written every
  `STORE_WRITE_S` seconds, before a checkpoint, and at the end.
  """

  def __init__(
    self,
    workdir: pathlib.Path,
    first_step: int,
    rows: Sequence[dict[str, Any]] = (),
    trackers: Trackers | None = None,
  ):
    """Opens the files and drops the lines of `first_step` and later.

    A killed run may have logged steps after its last checkpoint. It repeats
    them.

    Args:
      workdir: the run's folder.
      first_step: the first step that will be written.
      rows: metrics of earlier steps, from `take_rows`, that were stored in the
        checkpoint to resume from. They replace lines that the file has lost.
      trackers: also receive the metrics. `close` closes them.
    """
    self._trackers = trackers
    workdir.mkdir(parents=True, exist_ok=True)
    self._path = workdir / METRICS
    kept = _lines_before(self._path, first_step, rows)
    if kept or self._path.exists():
      storage.write_atomically(self._path, "".join(kept))
    self._rows: list[dict[str, Any]] = []
    self._stored: list[str] | None = None
    self._stored_at = time.monotonic()
    if storage.is_object_store(workdir):
      self._stored = kept
      return
    self._file = self._path.open("a", encoding="utf-8")
    self._events = _tensorboard().SummaryWriter(
      str(workdir / "tensorboard"), purge_step=first_step
    )

  def write(self, step: int, metrics: Mapping[str, float]) -> None:
    """Appends a step's metrics, except values that are not finite.

    JSON cannot represent those.
    """
    finite = {k: v for k, v in sorted(metrics.items()) if math.isfinite(v)}
    row = {"step": step, **finite}
    self._rows.append(row)
    if self._trackers is not None:
      self._trackers.write(step, finite)
    if self._stored is not None:
      self._stored.append(_line(row))
      if time.monotonic() - self._stored_at > STORE_WRITE_S:
        self._stored_at = time.monotonic()
        storage.write_if_possible(self._path, "".join(self._stored))
      return
    self._file.write(_line(row))
    self._file.flush()
    for name, value in finite.items():
      self._events.add_scalar(name, value, step)

  def flush(self) -> None:
    """Writes all metrics, so that a checkpoint is not ahead of them.

    Raises:
      OSError: the metrics cannot be written.
    """
    if self._stored is not None:
      self._stored_at = time.monotonic()
      storage.write_atomically(self._path, "".join(self._stored))

  def take_rows(self) -> list[dict[str, Any]]:
    """Returns the metrics since the last call, to store in a checkpoint."""
    rows, self._rows = self._rows, []
    return rows

  def close(self) -> None:
    """Writes all metrics, and closes files and trackers."""
    if self._trackers is not None:
      self._trackers.close()
    if self._stored is not None:
      storage.write_if_possible(self._path, "".join(self._stored))
      return
    self._file.close()
    self._events.close()


def _tensorboard() -> ModuleType:
  """Imports tensorboardX without torch, which would take seconds.

  tensorboardX uses torch to recognize tensors. Our values are floats.
  """
  if "torch" in sys.modules or "tensorboardX" in sys.modules:
    return importlib.import_module("tensorboardX")
  # pyrefly: ignore[unsupported-operation] - None hides a module from imports.
  sys.modules["torch"] = None
  try:
    return importlib.import_module("tensorboardX")
  finally:
    del sys.modules["torch"]


def _lines_before(
  path: pathlib.Path, first_step: int, rows: Sequence[dict[str, Any]]
) -> list[str]:
  """Returns the lines of steps before `first_step`, from the file and rows.

  Prints the steps that neither has.
  """
  lines = {row["step"]: _line(row) for row in rows if row["step"] < first_step}
  if path.exists():
    text = path.read_bytes().decode("utf-8", "replace")
    for line in text.split("\n"):
      step = _step_of(line)
      if step is not None and step < first_step:
        lines[step] = f"{line}\n"
  lost = sorted(set(range(1, first_step)) - lines.keys())
  if lost:
    shown = ", ".join(map(str, lost[:5])) + ", ..." * (len(lost) > 5)
    print_status(f"{path} has lost the metrics of steps {shown}")
  return [lines[step] for step in sorted(lines)]


def has_step(workdir: pathlib.Path, step: int) -> bool:
  """Returns whether a run has metrics of a step."""
  path = workdir / METRICS
  if not path.exists():
    return False
  lines = path.read_bytes().decode("utf-8", "replace").split("\n")
  return any(_step_of(line) == step for line in lines)


def _line(row: Mapping[str, Any]) -> str:
  return json.dumps(row, allow_nan=False) + "\n"


def _step_of(line: str) -> int | None:
  """Returns the step of a line, or None if the line is damaged."""
  try:
    step = json.loads(line)["step"]
  except (ValueError, KeyError, TypeError, RecursionError):
    return None
  return step if isinstance(step, int) else None


def write_samples(
  workdir: pathlib.Path,
  step: int,
  trajectories: Sequence[types.Trajectory],
  count: int,
) -> None:
  """Writes the texts of `count` trajectories, equally many per group."""
  if count == 0:
    return
  groups: dict[object, list[types.Trajectory]] = {}
  for trajectory in trajectories:
    groups.setdefault(trajectory.group_id, []).append(trajectory)
  # The first trajectory of every group, then the second of every group, ...
  rounds = itertools.zip_longest(*groups.values())
  chosen = [t for one_each in rounds for t in one_each if t is not None]
  records = [
    {
      "group": trajectory.group_id,
      "prompt": trajectory.prompt.text,
      "completion": trajectory.completion.text,
      "finish_reason": trajectory.completion.finish_reason,
      "reward": trajectory.reward,
      **trajectory.metrics,
    }
    for trajectory in chosen[:count]
  ]
  path = workdir / SAMPLES / f"{step:06d}.jsonl"
  text = "".join(json.dumps(record) + "\n" for record in records)
  storage.write_if_possible(path, text)
