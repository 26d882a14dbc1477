"""AZR's solver: prompts of tasks, and completions graded."""

import collections
import concurrent.futures
import dataclasses
import functools
from collections.abc import Callable, Sequence

from azr_jax import types
from azr_jax.parallel.verification import Verification
from azr_jax.rollout.policy import Policy
from azr_jax.tasks.programs import parsing, solving
from azr_jax.tasks.programs.task import ABDUCTION, Task


@dataclasses.dataclass
class Solution:
  """A solver's reply and its verdict."""

  prompt: types.Prompt
  completion: types.Completion
  task_type: str
  formatted: bool
  correct: bool


def solve_prompt(
  policy: Policy, task_type: str, task: Task, style: str
) -> types.Prompt:
  """Writes the solver's prompt of a task; the gold stays in `Prompt.task`."""
  return policy.prompt(solving.solve_prompt_text(task_type, task, style), task)


def sample_solutions(
  policy: Policy,
  verification: Verification,
  tasks: Sequence[tuple[str, Task]],
  style: str,
  n: int,
) -> list[Solution]:
  """Samples n solutions per task and grades each; ordered task by task.

  The inputs that one abduction task was given are run by one child, so they
  wait for each other; everything else is graded as it comes.
  """
  asked = [
    solve_prompt(policy, task_type, task, style) for task_type, task in tasks
  ]
  replies: dict[tuple[int, int], types.Completion] = {}
  waiting: dict[int, list[int]] = collections.defaultdict(list)
  verdicts: dict[tuple[int, int], Callable[[], bool]] = {}
  for index, sample, completion in policy.sample(asked, n):
    task_type, task = tasks[index]
    replies[index, sample] = completion
    waiting[index].append(sample)
    if task_type == ABDUCTION and len(waiting[index]) < n:
      continue
    samples = waiting.pop(index)
    texts = [replies[index, sample].text for sample in samples]
    graded = verification.submit(
      functools.partial(
        solving.submit_grading,
        task_type=task_type,
        task=task,
        responses=texts,
      )
    )
    for place, sample in enumerate(samples):
      verdicts[index, sample] = functools.partial(_verdict, graded, place)
  verification.settle()
  return [
    Solution(
      prompt=asked[index],
      completion=replies[index, sample],
      task_type=tasks[index][0],
      formatted=parsing.well_formatted(replies[index, sample].text),
      correct=verdicts[index, sample](),
    )
    for index in range(len(tasks))
    for sample in range(n)
  ]


def _verdict(
  graded: concurrent.futures.Future[tuple[bool, ...]], place: int
) -> bool:
  return graded.result()[place]
