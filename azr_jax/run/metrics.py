"""Metric writers and sampled texts of a run.

A metric's name is a path. `HEALTHY` says what a healthy value of each family
looks like; families of one system alone are in that system's `METRICS`.
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

METRICS = "metrics.jsonl"  # In a run's folder.
SAMPLES = "samples"  # The folder of sampled texts there.
STORE_S = 30.0  # Between two writes of the metrics in an object store.
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
  "groups": "equal_share: groups that teach nothing, well below 1",
  "critic": "value_loss falls; explained_variance rises above 0",
  "evaluation": "pass@1 rises",
  "safety": "flagged_share near 0; read what flagged/ keeps",
  "compile": "programs compiled in the step: 0 after the first",
}


def to_host(metrics: Mapping[str, object]) -> dict[str, float]:
  """Turns fetched device scalars into plain floats."""
  return {name: float(np.asarray(value)) for name, value in metrics.items()}


class MetricsWriter:
  """Writes one JSON object per step, and TensorBoard events beside it.

  In an object store only the former, every `STORE_S` seconds and at the end.
  """

  def __init__(self, workdir: pathlib.Path, first_step: int):
    """Opens the files; lines of `first_step` and later are dropped.

    A run that was killed may have logged steps after its last checkpoint;
    it will do those steps again.
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
    # Imported here, because it imports torch if that is installed: seconds.
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
    """Has everything written: with a checkpoint, which must not be ahead."""
    if self._stored is not None:
      self._store(self._stored)

  def _store(self, lines: list[str]) -> None:
    self._stored_at = time.monotonic()
    try:
      storage.write_whole(self._path, "".join(lines))
    except OSError as error:  # It is tried again with the next lines.
      print_status(f"{self._path}: {error}")

  def close(self) -> None:
    """Writes what is left, and closes the files."""
    if self._stored is not None:
      self._store(self._stored)
      return
    self._file.close()
    self._events.close()


def _step_before(line: str, first_step: int) -> bool:
  try:
    return json.loads(line)["step"] < first_step
  except (ValueError, KeyError):  # The line that was being written at a kill.
    return False


def write_samples(
  workdir: pathlib.Path,
  step: int,
  trajectories: Sequence[types.Trajectory],
  count: int,
) -> None:
  """Keeps the texts of `count` trajectories, as many of each of its groups."""
  if count == 0:
    return
  groups: dict[object, list[types.Trajectory]] = {}
  for trajectory in trajectories:
    groups.setdefault(trajectory.group_id, []).append(trajectory)
  # The first of every group, then the second of every one, and so on.
  turns = itertools.zip_longest(*groups.values())
  chosen = [t for turn in turns for t in turn if t is not None]
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
