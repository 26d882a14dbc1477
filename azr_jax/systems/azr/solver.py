"""AZR's solver: prompts of tasks, and completions graded."""

import collections
import concurrent.futures
import dataclasses
import functools
from collections.abc import Callable, Sequence

from azr_jax import types
from azr_jax.executor import Executor, futures
from azr_jax.grading import programs as grading
from azr_jax.parallel.verification import Verification
from azr_jax.rollout.policy import Policy
from azr_jax.tasks.programs import parsing, prompts
from azr_jax.tasks.programs.task import (
  ABDUCTION,
  DEDUCTION,
  ERROR_DEDUCTION,
  InductionTask,
  Task,
  Triplet,
)


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
  return policy.prompt(solve_prompt_text(task_type, task, style), task)


def solve_prompt_text(task_type: str, task: Task, style: str) -> str:
  """Shows the solver its half of a task."""
  if isinstance(task, InductionTask):
    shown = len(task.inputs) // 2
    return prompts.solve_induction_prompt(
      task.inputs[:shown], task.outputs[:shown], task.message, style
    )
  if task_type == DEDUCTION:
    return prompts.solve_deduction_prompt(task.code, task.input, style)
  if task_type == ERROR_DEDUCTION:
    return prompts.solve_error_prompt(task.code, task.input, style)
  return prompts.solve_abduction_prompt(task.code, task.output, style)


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
        submit_grading, task_type=task_type, task=task, replies=texts
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


def submit_grading(
  executor: Executor, task_type: str, task: Task, replies: Sequence[str]
) -> concurrent.futures.Future[tuple[bool, ...]]:
  """Starts the verification of replies to a task (paper, section 3.3.4).

  Returns the future of a verdict per reply, in order.
  """
  if task_type == ABDUCTION and isinstance(task, Triplet):
    answers = [parsing.parse_input_answer(reply) or "" for reply in replies]
    return grading.submit_abduction(executor, task.code, task.output, answers)
  return futures.gather(
    [_submit_grading(executor, task_type, task, reply) for reply in replies]
  )


def _submit_grading(
  executor: Executor, task_type: str, task: Task, reply: str
) -> concurrent.futures.Future[bool]:
  """Grades a reply that needs a child of its own, or none."""
  if isinstance(task, InductionTask):
    answer = parsing.parse_program_answer(reply)
    if answer is None:
      return futures.done(False)
    return grading.submit_induction(executor, answer, task.inputs, task.outputs)
  answer = parsing.parse_output_answer(reply)
  is_correct = (
    grading.error_correct
    if task_type == ERROR_DEDUCTION
    else grading.deduction_correct
  )
  return futures.done(answer is not None and is_correct(task.output, answer))
