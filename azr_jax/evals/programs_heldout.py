"""`programs_heldout`: accuracy on 300 unseen tasks of each of AZR's types.

`--limit` is of each type; the score of all types is pass@1.
"""

import pathlib
from concurrent.futures import Future
from typing import Any

from azr_jax.corpora.programs import heldout
from azr_jax.evals.benchmark import Benchmark, Grade, Item
from azr_jax.executor import Executor, futures
from azr_jax.models.tokenizers import Tokenizer
from azr_jax.tasks.programs import parsing, solving
from azr_jax.tasks.programs import task as task_lib


def read(data: str) -> list[Item]:
  """Items of a file of tasks, or of the one in the package."""
  path = pathlib.Path(data).expanduser() if data else heldout.ASSET
  return [
    Item(
      f"{one.task_type}/{index}",
      solving.solve_prompt_text(one.task_type, one.task, "compact"),
      {"task": task_lib.to_json(one.task)},
      one.task_type,
    )
    for index, one in enumerate(heldout.read(path))
  ]


def _task(item: Item) -> task_lib.Task:
  return task_lib.from_json(item.reference["task"])


def grade(executor: Executor, item: Item, reply: str) -> "Future[Grade]":
  """Grades a reply as AZR's solver is graded."""
  detail = "" if parsing.well_formatted(reply) else "bad format"
  graded = solving.submit_grading(executor, item.kind, _task(item), [reply])
  return futures.then(graded, lambda correct: Grade(correct[0], detail))


def prompt(item: Item, style: Any, tokenizer: Tokenizer) -> str:
  """The solver's prompt in one of `tasks.programs.prompts.STYLES`."""
  del tokenizer  # It has no style with a chat template.
  return solving.solve_prompt_text(item.kind, _task(item), style)


BENCHMARKS = (
  Benchmark(
    "programs_heldout",
    "",
    read,
    "code",
    grade,
    prompt=prompt,
    reads_by_name=True,
    by_kind=True,
  ),
)
