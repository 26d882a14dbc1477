"""Yoked self-play: solve the tasks of another run, step by step.

Every run writes the tasks that it solves to `records/tasks/STEP.jsonl`. With
`azr.yoked_to=RUN` a run proposes nothing: in each step it solves exactly the
tasks that RUN solved in that step. Its tasks therefore have the difficulty and
the order of self-play, but do not adapt to what it has learned. The difference
from RUN is what a proposer that adapts to its solver contributes.

A folder with such files from another source works too.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from azr_jax.config import user_files
from azr_jax.parallel.hosts import Hosts
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.policy import Policy
from azr_jax.run import storage
from azr_jax.run.records import Records
from azr_jax.systems.azr import solver
from azr_jax.systems.azr.calls import AZRCall
from azr_jax.systems.azr.solver import Solution
from azr_jax.tasks.programs import task as task_lib
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.task import Task


def file_of(step: int) -> str:
  """Returns the name of a step's tasks among a run's records."""
  return f"tasks/{step:06d}.jsonl"


def to_rows(solutions: Sequence[Solution]) -> list[dict[str, Any]]:
  """Returns the tasks of a step's solutions as JSON values, in order."""
  return [
    {"type": one.task_type, "task": task_lib.to_json(one.prompt.task)}
    for one in solutions
  ]


def read(
  run: str, step: int, hosts: Hosts, task_types: Sequence[str]
) -> list[tuple[str, Task]]:
  """Returns the (type, task) pairs that a run solved in a step.

  Args:
    run: the folder of the run.
    step: number of the step in both runs.
    hosts: the processes of the reading run, which all get the same tasks.
    task_types: the types that the reading run accepts.

  Raises:
    ValueError: the run has no tasks of this step, they have other types, or
      some are unverified.
  """
  name = f"records/{file_of(step)}"
  with user_files.reading(f"{run}/{name}", "tasks of a step"):
    rows = Records(storage.resolve(run), hosts).read(file_of(step))
    tasks = [(row["type"], task_lib.from_json(row["task"])) for row in rows]
  types = {task_type for task_type, _ in tasks}
  if not tasks or not types <= {*task_types}:
    raise ValueError(
      f"config.azr.yoked_to={run!r}: {name} has tasks of "
      f"{sorted(map(str, types))}: expected tasks of {[*task_types]}, as a run "
      f"of azr with {step} steps or more writes them"
    )
  if not all(task_lib.is_verified(task) for _, task in tasks):
    raise ValueError(
      f"config.azr.yoked_to={run!r}: {name} has tasks whose "
      "programs failed: expected a run with azr.unverified_fraction=0"
    )
  return tasks


async def solve(
  policy: Policy,
  jobs: SharedJobs,
  tasks: Sequence[tuple[str, Task]],
  prompt_builder: PromptBuilder,
) -> list[Solution]:
  """Returns a graded solution of each task, in order.

  Args:
    policy: samples the solutions.
    jobs: grades the solutions.
    tasks: (type, task) pairs. Those whose prompt is too long are left out.
    prompt_builder: builds the prompts.
  """
  numbered = [
    (index, task_type, task)
    for index, (task_type, task) in enumerate(tasks)
    if policy.fits(solver.solve_prompt(policy, task_type, task, prompt_builder))
  ]
  solved = await policy.gather(
    solver.solve(
      *(policy, jobs, AZRCall.SOLVE, index, task_type, task),
      *(prompt_builder, 1, False),
    )
    for index, task_type, task in numbered
  )
  return [*itertools.chain.from_iterable(solved)]
