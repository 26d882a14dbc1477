"""Metric writers, sampled texts and the progress line of a run.

A metric's name is a path; `HEALTHY` says what each family looks like when
all is well.
"""

import itertools
import json
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence

import numpy as np
import tensorboardX

from azr_jax import types
from azr_jax.run import storage

METRICS = "metrics.jsonl"  # In a run's folder.
SAMPLES = "samples"  # The folder of sampled texts there.
STORE_S = 30.0  # Between two writes of the metrics in an object store.
# Metric family -> what a healthy value looks like.
HEALTHY = {
  "reward": "rises; propose stays below solve once tasks are learnable",
  "tokens": "completion tokens; truncated_share near 0",
  "count": "trajectories per task and role, B each",
  "correct": "rises for every task type",
  "formatted": "above 0.95 after a few steps",
  # rejected_...: by reason; unused, trivial: of composite programs, which add
  # nothing to their parts; no_error: of programs that were to raise.
  "proposals": "valid_share rises; blocked and timeout stay rare",
  "program": "cognitive, distance and answer_diversity rise or stay",
  "learnability": "solve_rate away from 0 and 1, else nothing is learned",
  "buffer": "grows by about B x valid_share a step",
  "executor": "verdict counts; timeouts rare",
  "rollout": "logprob_gap below 1e-3 in float32",
  "learner": "entropy falls slowly; grad_norm without spikes",
  "time": "seconds per phase; verification_wait near 0",
  "curriculum": "probability and success of each bucket, replay_share",
  "groups": "equal_share: of groups that teach nothing, well below 1",
  "answer_blocks": "answers in a response: 1",
  "critic": "value_loss falls; explained_variance rises above 0",
  "health": "truncated_share, repeat_score near 0; formatted_share near 1",
  "stage": "number rises; groups of a size worth a stage",
  "correct_by_task": "rises where code helps",
  "self_check": "share of conversations that check an answer by code",
  "tokens_of_a_reply": "does not grow without accuracy",
  "turns": "penalty for more than most_turns replies: near 0",
  "calls": "scripts of a conversation; rises where code helps",
  "replies": "of a conversation: fewer than most_turns",
  "form": "near +form_reward after a few steps",
  "interpreter": "slots_writing high; overlap_share near 1; timeouts rare",
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
      say(f"{self._path}: {error}")

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


def say(text: str) -> None:
  """Prints a line for the person at the terminal or reading the log."""
  print(text, file=sys.stderr, flush=True)


class Progress:
  """One line per step with rate and ETA; rewritten in place on a terminal."""

  def __init__(self, first_step: int, last_step: int, unit: str = "step"):
    self._first, self._last, self._unit = first_step, last_step, unit
    self._start = time.monotonic()
    self._terminal = sys.stderr.isatty()

  def show(self, step: int, text: str) -> None:
    """Reports that `step` is done."""
    done = step - self._first + 1
    seconds = (time.monotonic() - self._start) / done
    left = (self._last - step) * seconds
    line = (
      f"{self._unit} {step}/{self._last}  {seconds:.2f} s/{self._unit}  "
      f"ETA {int(left) // 60}:{int(left) % 60:02d}  {text}"
    )
    end = "\r" if self._terminal and step < self._last else "\n"
    width = 140 if self._terminal else 0
    print(line.ljust(width), end=end, file=sys.stderr, flush=True)
