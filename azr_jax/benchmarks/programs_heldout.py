"""`programs_heldout`: accuracy on 300 unseen tasks per type."""

import pathlib
from collections.abc import Sequence
from typing import Any

from azr_jax.grading.verification import Verification
from azr_jax.rollout.policy import Policy
from azr_jax.systems import azr_tasks
from azr_jax.tasks.programs import heldout
from azr_jax.tasks.programs.task import TASK_TYPES

NAME = "programs_heldout"


def run(
  policy: Policy,
  verification: Verification,
  *,
  data: str,
  limit: int,
  prompt_style: str,
  samples: int,
) -> tuple[dict[str, float], list[dict[str, Any]]]:
  """Asks every task `samples` times.

  Args:
    policy: samples the answers; greedy if its sampler is.
    verification: grades them.
    data: a JSONL of tasks, or "" for the one in the package.
    limit: most tasks per type; 0 takes all.
    prompt_style: one of `prompts.STYLES`.
    samples: answers to each task, which all count.

  Returns:
    Accuracy per task type and their mean, and one record per answer.
  """
  path = pathlib.Path(data) if data else heldout.ASSET
  tasks = _limited(heldout.read(path), limit)
  solutions = azr_tasks.sample_solutions(
    policy,
    verification,
    [(t.task_type, t.task) for t in tasks],
    prompt_style,
    n=samples,
  )
  records = [
    {
      "task_type": solution.task_type,
      "correct": solution.correct,
      "formatted": solution.formatted,
      "prompt": solution.prompt.text,
      "answer": solution.completion.text,
    }
    for solution in solutions
  ]
  scores = {
    f"{NAME}/{task_type}": _accuracy(records, task_type)
    for task_type in TASK_TYPES
  }
  scores[f"{NAME}/mean"] = sum(scores.values()) / len(scores)
  return scores, records


def _limited(
  tasks: Sequence[heldout.HeldoutTask], limit: int
) -> list[heldout.HeldoutTask]:
  return [
    task
    for task_type in TASK_TYPES
    for task in [t for t in tasks if t.task_type == task_type][: limit or None]
  ]


def _accuracy(records: Sequence[dict[str, Any]], task_type: str) -> float:
  own = [r["correct"] for r in records if r["task_type"] == task_type]
  return sum(own) / max(len(own), 1)
