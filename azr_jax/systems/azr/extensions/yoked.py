"""Yoked self-play: solve the tasks of another run, step by step.

Every run writes the tasks that it solves to `records/tasks/STEP.jsonl`. With
`azr.yoked_to=RUN` the solver gets exactly the tasks that RUN solved in that
step. Proposals are made, rewarded by their learnability rollouts and trained on
as usual. The solver's tasks have the difficulty and the order of self-play, but
they do not follow this run's proposer. Over several seeds, the difference from
RUN is what following it contributes.

A folder with such files from another source works too.
"""

from collections.abc import Sequence
from typing import Any

from azr_jax.config import user_files
from azr_jax.parallel.hosts import Hosts
from azr_jax.run import storage
from azr_jax.run.records import Records
from azr_jax.systems.azr.solver import Solution
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.task import Task


def file_of(step: int) -> str:
  """Returns the name of a step's tasks among a run's records."""
  return f"tasks/{step:06d}.jsonl"


def to_row(task_type: str, task: Task) -> dict[str, Any]:
  """Returns a task as JSON values."""
  return {"type": task_type, "task": task_lib.to_json(task)}


def to_rows(solutions: Sequence[Solution]) -> list[dict[str, Any]]:
  """Returns the tasks of a step's solutions as JSON values, in order."""
  return [to_row(one.task_type, one.prompt.task) for one in solutions]


def read(run: str, step: int, hosts: Hosts) -> list[tuple[str, Task]]:
  """Returns the (type, task) pairs that a run solved in a step.

  Args:
    run: the folder of the run.
    step: number of the step in both runs.
    hosts: the processes of the reading run, which all get the same tasks.

  Raises:
    ValueError: the run has no tasks of this step, or some are unverified.
  """
  name = f"records/{file_of(step)}"
  with user_files.reading(f"{run}/{name}", "tasks of a step"):
    rows = Records(storage.resolve(run), hosts).read(file_of(step))
    tasks = [(row["type"], task_lib.from_json(row["task"])) for row in rows]
  if not tasks:
    raise ValueError(
      f"config.azr.yoked_to={run!r}: {name} has no tasks: expected a run of "
      f"azr with {step} steps or more"
    )
  if not all(task_lib.is_verified(task) for _, task in tasks):
    raise ValueError(
      f"config.azr.yoked_to={run!r}: {name} has tasks whose programs failed: "
      "expected a run with azr.unverified_fraction=0"
    )
  return tasks


def by_episode(
  tasks: Sequence[tuple[str, Task]], task_types: Sequence[str], prompts: int
) -> list[Task | None]:
  """Returns the tasks in the order of a step's episodes.

  Args:
    tasks: (type, task) pairs.
    task_types: the task types of the reading run.
    prompts: its episodes per type. Episodes for which no task is left get None.

  Raises:
    ValueError: there are tasks without an episode.
  """
  given = {
    task_type: [task for other, task in tasks if other == task_type]
    for task_type in task_types
  }
  most = max(map(len, given.values()))
  if sum(map(len, given.values())) < len(tasks) or most > prompts:
    types = sorted({task_type for task_type, _ in tasks})
    raise ValueError(
      f"config.azr.yoked_to: {len(tasks)} tasks of {types}: expected tasks of "
      f"{[*task_types]}, at most azr.prompts={prompts} of each"
    )
  return [
    task
    for task_type in task_types
    for task in [*given[task_type], *[None] * (prompts - len(given[task_type]))]
  ]
