"""Writes tasks of the corpus generator, in the layout that a run has.

  python -m experiments.yoked.generator --out=DIR

A step has as many tasks of each type as `configs/azr.py:tiny` solves. No task
is about a program of the benchmark `programs_heldout`.
"""

import argparse
import json
import pathlib

import numpy as np

from azr_jax.corpora.programs import conversations, heldout
from azr_jax.systems.azr.extensions import yoked
from azr_jax.tasks.programs.task import INDUCTION, TASK_TYPES, Task

SEED = 57


def draw(rng: np.random.Generator, task_type: str) -> Task:
  """Draws a task that is not held out."""
  while True:
    if task_type == INDUCTION:
      _, task = conversations.draw_induction(
        rng, heldout.NUM_INPUTS, heldout.VAGUE_FRACTION
      )
    else:
      _, _, task = conversations.draw_triplet(rng)
    if not heldout.is_heldout(task.code):
      return task


def main() -> None:
  """Reads the flags and writes a file per step."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--out", type=pathlib.Path, required=True)
  parser.add_argument("--steps", type=int, default=40)
  parser.add_argument("--prompts", type=int, default=16)
  flags = parser.parse_args()
  rng = np.random.default_rng(SEED)
  for step in range(1, flags.steps + 1):
    path = flags.out / "records" / yoked.file_of(step)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
      yoked.to_row(task_type, draw(rng, task_type))
      for task_type in TASK_TYPES
      for _ in range(flags.prompts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
  main()
