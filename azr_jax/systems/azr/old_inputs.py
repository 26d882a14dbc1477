"""Reads task buffers of runs that kept inputs as their proposers wrote them.

Such runs kept any expression. Today a task's input must be a literal
(`tasks/programs/validation.py`), so this module validates each task with
another input again, and drops it if validation rejects it, because no answer to
it could be graded.
"""

import functools
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from azr_jax.executor import Executor
from azr_jax.grading.literals import are_literal_arguments
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.tasks.programs import buffer, task, validation
from azr_jax.tasks.programs.task import InductionTask, Task


def convert(
  jobs: SharedJobs, entries: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
  """Makes all inputs of a buffer literals.

  Args:
    jobs: validates tasks again.
    entries: the state of a `TaskBuffer`.

  Returns:
    The entries, without those of refused tasks.
  """
  old: dict[int, Future[Any]] = {}
  for index, entry in enumerate(entries):
    kept = task.from_json(entry["task"])
    is_induction = isinstance(kept, InductionTask)
    inputs = kept.inputs if is_induction else (kept.input,)
    if not all(map(are_literal_arguments, inputs)):
      old[index] = jobs.submit(functools.partial(_validate, kept=kept))
  jobs.wait_all()
  converted = []
  for index, entry in enumerate(entries):
    if index in old:
      valid = old[index].result()
      if isinstance(valid, validation.Rejection):
        continue
      changed = {"task": task.to_json(valid), "key": buffer.task_key(valid)}
      entry = entry | changed
    converted.append(entry)
  dropped = len(entries) - len(converted)
  if dropped:
    logging.warning(
      "%d of %d tasks of this run are dropped: their inputs have no literal",
      dropped,
      len(entries),
    )
  return converted


def _validate(executor: Executor, kept: Task) -> validation.ValidationFuture:
  if isinstance(kept, InductionTask):
    return validation.submit_induction_task(
      executor, kept.code, kept.inputs, kept.message
    )
  return validation.submit_triplet(executor, kept.code, kept.input)
