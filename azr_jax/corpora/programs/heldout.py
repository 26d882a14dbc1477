"""The held-out tasks, about programs that no training text contains.

  python -m azr_jax.corpora.programs.heldout --out=tasks.jsonl

A hash of its normalized text, without names and layout, decides whether a
program is held out. The corpus excludes exactly these programs.

The hash has a gap. A helper's parameter and the program's variable count as one
name if they are spelled alike, so the corpus may contain a program that differs
from a held-out one only in a variable's name. This holds for 84 stored tasks,
all with a helper; docs/results/azr.md has the scores without them.
"""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Iterator

import numpy as np

from azr_jax.cli import errors
from azr_jax.config import user_files
from azr_jax.corpora.programs import conversations
from azr_jax.executor import Executor
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs import validation
from azr_jax.tasks.programs.program_key import program_key
from azr_jax.tasks.programs.task import INDUCTION, TASK_TYPES, Task

ASSET = pathlib.Path(__file__).parents[2] / "assets/programs_heldout.jsonl"
# One in this many programs is held out.
HELDOUT_MODULUS = 20
PER_TYPE = 300
# Maximum number of tasks per program. It is small because there are few short
# programs, and they are drawn often.
PER_PROGRAM = 5
SEED = 20_000
NUM_INPUTS = 4
VAGUE_FRACTION = 0.3


@dataclasses.dataclass(frozen=True)
class HeldoutTask:
  """A task of the benchmark.

  Attributes:
    task_type: deduction, abduction or induction.
  """

  task_type: str
  task: Task


def is_heldout(code: str) -> bool:
  """Returns whether a program is held out, which depends only on its key."""
  return int(program_key(code), 16) % HELDOUT_MODULUS == 0


def draw(seed: int, per_type: int) -> Iterator[HeldoutTask]:
  """Yields distinct tasks, `per_type` of each type.

  At most `PER_PROGRAM` of them are about the same program.
  """
  rng = np.random.default_rng(seed)
  for task_type in TASK_TYPES:
    seen: set[Task] = set()
    per_program: collections.Counter[str] = collections.Counter()
    while len(seen) < per_type:
      task: Task
      if task_type == INDUCTION:
        _, task = conversations.draw_induction(rng, NUM_INPUTS, VAGUE_FRACTION)
      else:
        _, _, task = conversations.draw_triplet(rng)
      key = program_key(task.code)
      is_new = task not in seen and per_program[key] < PER_PROGRAM
      if is_heldout(task.code) and is_new:
        seen.add(task)
        per_program[key] += 1
        yield HeldoutTask(task_type, task)


def build(executor: Executor, seed: int, per_type: int) -> list[HeldoutTask]:
  """Draws tasks and validates each with the executor.

  Raises:
    ValueError: an output of the executor differs from the generator's.
  """
  tasks = list(draw(seed, per_type))
  pending = [validation.submit_again(executor, t.task) for t in tasks]
  checked = []
  for heldout, future in zip(tasks, pending, strict=True):
    task = future.result()
    if task != heldout.task:
      raise ValueError(f"expected {heldout.task}, the executor returned {task}")
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
  """Reads the tasks that `write` wrote.

  Raises:
    ValueError: the file is damaged.
  """
  with user_files.reading(path, "tasks, one per line"):
    lines = path.read_text(user_files.ENCODING).splitlines()
    records = [user_files.parse_json(line) for line in lines]
    return [
      HeldoutTask(r["task_type"], task_lib.from_json(r["task"]))
      for r in records
    ]


def main() -> None:
  """Reads the flags and writes the tasks."""
  parser = errors.Parser(__doc__, "azr_jax.corpora.programs.heldout")
  parser.add_argument("--out", type=pathlib.Path, default=ASSET)
  flags = parser.parse_args()
  with Executor(workers=2, timeout_s=2.0, memory_mb=512) as executor:
    write(build(executor, SEED, PER_TYPE), flags.out)


if __name__ == "__main__":
  errors.guard(main)
