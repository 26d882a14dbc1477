"""The held-out tasks: programs that no training text contains.

  python -m azr_jax.tasks.programs.heldout --out=tasks.jsonl

A program belongs here by the hash of its normalised text, which ignores
names and layout; the corpus leaves out exactly these programs.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
from collections.abc import Iterator

import numpy as np

from azr_jax.corpora.programs import conversations, dataset
from azr_jax.executor import Executor
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs import validation
from azr_jax.tasks.programs.program_key import program_key
from azr_jax.tasks.programs.task import INDUCTION, TASK_TYPES, Task

ASSET = pathlib.Path(__file__).parents[2] / "assets/programs_heldout.jsonl"
PER_TYPE = 300
PER_PROGRAM = 5  # Short programs are few, but common in the corpus.
SEED = 20_000
NUM_INPUTS = 4
VAGUE_SHARE = 0.3


@dataclasses.dataclass(frozen=True)
class HeldoutTask:
  """One task of the benchmark."""

  task_type: str
  task: Task


def draw(seed: int, per_type: int) -> Iterator[HeldoutTask]:
  """Yields held-out tasks, few per program and no task twice."""
  rng = np.random.default_rng(seed)
  for task_type in TASK_TYPES:
    seen: set[Task] = set()
    uses: collections.Counter[str] = collections.Counter()
    while len(seen) < per_type:
      task: Task
      if task_type == INDUCTION:
        _, task = conversations.draw_induction(rng, NUM_INPUTS, VAGUE_SHARE)
      else:
        _, _, task = conversations.draw_triplet(rng)
      key = program_key(task.code)
      fresh = task not in seen and uses[key] < PER_PROGRAM
      if dataset.is_heldout(task.code) and fresh:
        seen.add(task)
        uses[key] += 1
        yield HeldoutTask(task_type, task)


def build(executor: Executor, seed: int, per_type: int) -> list[HeldoutTask]:
  """Draws the tasks and checks each with the executor.

  Raises:
    ValueError: a task is not what the generator says it is.
  """
  tasks = list(draw(seed, per_type))
  verdicts = [
    validation.submit_induction_task(
      executor, t.task.code, t.task.inputs, t.task.message
    )
    if isinstance(t.task, task_lib.InductionTask)
    else validation.submit_triplet(executor, t.task.code, t.task.input)
    for t in tasks
  ]
  checked = []
  for heldout, verdict in zip(tasks, verdicts, strict=True):
    task = verdict.result()
    if task != heldout.task:
      raise ValueError(f"expected {heldout.task}, the executor found {task}")
    checked.append(heldout)
  return checked


def write(tasks: list[HeldoutTask], path: pathlib.Path) -> None:
  """Writes one JSON object per task."""
  with path.open("w", encoding="utf-8") as file:
    for heldout in tasks:
      record = {
        "task_type": heldout.task_type,
        "task": task_lib.to_json(heldout.task),
      }
      file.write(json.dumps(record) + "\n")


def read(path: pathlib.Path = ASSET) -> list[HeldoutTask]:
  """Reads what `write` wrote."""
  records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
  return [
    HeldoutTask(r["task_type"], task_lib.from_json(r["task"])) for r in records
  ]


def main() -> None:
  """Reads the flags and writes the tasks."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--out", type=pathlib.Path, default=ASSET)
  flags = parser.parse_args()
  with Executor(workers=2, timeout_s=2.0, memory_mb=512) as executor:
    write(build(executor, SEED, PER_TYPE), flags.out)


if __name__ == "__main__":
  main()
