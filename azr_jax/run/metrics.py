"""Writes the metrics and sampled texts of a run.

A metric's name is a path, and its first part a family. `HEALTHY` says what a
healthy value of each family looks like; families that only one system has are
in that system's `METRICS`.
"""

import itertools
import json
import pathlib
import time
from collections.abc import Mapping, Sequence

import numpy as np

from azr_jax import types
from azr_jax.run import storage
from azr_jax.run.console import print_status

# Names in a run's folder: the metrics, and the folder of sampled texts.
METRICS = "metrics.jsonl"
SAMPLES = "samples"
# Seconds between two writes of the metrics in an object store.
STORE_S = 30.0
# Metric family -> what a healthy value looks like.
HEALTHY = {
  "reward": "rises; propose stays below solve once tasks are learnable",
  "tokens": "completion tokens; truncated_share near 0",
  "count": "trajectories per role, and prompts that were too long",
  "correct": "rises for every task type",
  "formatted": "above 0.95 after a few steps",
  "executor": "verdict counts; timeouts rare",
  "rollout": "logprob_gap below 1e-3 in float32",
  "learner": "entropy falls slowly; grad_norm without spikes",
  "time": "seconds per phase; verification_wait near 0",
  "groups": "equal_share: zero-advantage groups, well below 1",
  "critic": "value_loss falls; explained_variance rises above 0",
  "evaluation": "pass@1 rises",
  "safety": "flagged_share near 0; read what flagged/ keeps",
  "compile": "programs compiled in the step: 0 after the first",
}


def to_host(metrics: Mapping[str, object]) -> dict[str, float]:
  """Returns fetched device scalars as plain floats."""
  return {name: float(np.asarray(value)) for name, value in metrics.items()}


class MetricsWriter:
  """Writes one JSON object per step, and TensorBoard events.

  In an object store there are no events, and the objects are written every
  `STORE_S` seconds and at the end.
  """

  def __init__(self, workdir: pathlib.Path, first_step: int):
    """Opens the files and drops the lines of `first_step` and later.

    A run that was killed may have logged steps after its last checkpoint;
    it repeats those steps.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    self._path = workdir / METRICS
    kept: list[str] = []
    if self._path.exists():
      lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
      kept = [line for line in lines if _step_before(line, first_step)]
      storage.write_whole(self._path, "".join(kept))
    self._stored: list[str] | None = None
    self._stored_at = time.monotonic()
    if storage.is_object_store(workdir):
      self._stored = kept
      return
    self._file = self._path.open("a", encoding="utf-8")
    # Imported here, because it takes seconds to import torch if there is one.
    import tensorboardX

    self._events = tensorboardX.SummaryWriter(
      str(workdir / "tensorboard"), purge_step=first_step
    )

  def write(self, step: int, metrics: Mapping[str, float]) -> None:
    """Appends a step's metrics."""
    line = json.dumps({"step": step} | dict(sorted(metrics.items()))) + "\n"
    if self._stored is not None:
      self._stored.append(line)
      if time.monotonic() - self._stored_at > STORE_S:
        self._store(self._stored)
      return
    self._file.write(line)
    self._file.flush()
    for name, value in metrics.items():
      self._events.add_scalar(name, value, step)

  def flush(self) -> None:
    """Writes all metrics, so that a checkpoint is not ahead of them."""
    if self._stored is not None:
      self._store(self._stored)

  def _store(self, lines: list[str]) -> None:
    self._stored_at = time.monotonic()
    try:
      storage.write_whole(self._path, "".join(lines))
    except OSError as error:  # The next call writes these lines too.
      print_status(f"{self._path}: {error}")

  def close(self) -> None:
    """Writes all metrics and closes the files."""
    if self._stored is not None:
      self._store(self._stored)
      return
    self._file.close()
    self._events.close()


def _step_before(line: str, first_step: int) -> bool:
  try:
    return json.loads(line)["step"] < first_step
  except (ValueError, KeyError):  # A kill cut the line off.
    return False


def write_samples(
  workdir: pathlib.Path,
  step: int,
  trajectories: Sequence[types.Trajectory],
  count: int,
) -> None:
  """Writes the texts of `count` trajectories, equally many of each group."""
  if count == 0:
    return
  groups: dict[object, list[types.Trajectory]] = {}
  for trajectory in trajectories:
    groups.setdefault(trajectory.group_id, []).append(trajectory)
  # The first trajectory of every group, then the second of every group, ...
  rounds = itertools.zip_longest(*groups.values())
  chosen = [t for one_each in rounds for t in one_each if t is not None]
  folder = workdir / SAMPLES
  folder.mkdir(parents=True, exist_ok=True)
  with (folder / f"{step:06d}.jsonl").open("w", encoding="utf-8") as file:
    for trajectory in chosen[:count]:
      record = {
        "group": trajectory.group_id,
        "prompt": trajectory.prompt.text,
        "completion": trajectory.completion.text,
        "finish_reason": trajectory.completion.finish_reason,
        "reward": trajectory.reward,
        **trajectory.metrics,
      }
      file.write(json.dumps(record) + "\n")
