"""AZR's solver: samples and grades solutions of tasks."""

import dataclasses
import functools
from collections.abc import Sequence
from concurrent.futures import Future

from azr_jax import types
from azr_jax.executor import futures
from azr_jax.grading.outcome import Outcome
from azr_jax.grading.votes import Vote
from azr_jax.parallel.shared_jobs import SharedJobs
from azr_jax.rollout.policy import Policy
from azr_jax.systems import collect
from azr_jax.systems.azr.calls import AZRCall
from azr_jax.tasks.programs import parsing, solving
from azr_jax.tasks.programs.prompt_builder import PromptBuilder
from azr_jax.tasks.programs.task import (
  ABDUCTION,
  ENVIRONMENT,
  INDUCTION,
  Task,
)

# Types whose tasks may have several right answers.
_MANY_ANSWERS = (ABDUCTION, INDUCTION, ENVIRONMENT)


@dataclasses.dataclass
class Solution:
  """A solver's graded response.

  Attributes:
    prompt: the prompt, whose task is the program task.
    completion: the response.
    formatted: whether the response is well formed.
    outcome: the grade, from the task's label if it has one
      (`extensions/labels.py`).
    truth: the executor's grade; None if the task is unverified.
    vote: the answer that counts as a vote. None if there is no answer or no
      vote was requested.
    computed: whether a correct deduction answer is an expression that computes
      the output instead of the output itself.
    said: what the executor showed about a wrong answer; "" after `relabel`.
    reference: the answer that the prompt hides. "" if it is unknown, for a
      right answer to a task that has others, and after `relabel`.
  """

  prompt: types.Prompt
  completion: types.Completion
  task_type: str
  formatted: bool
  outcome: Outcome
  truth: Outcome | None = None
  vote: Vote = None
  computed: bool = False
  said: str = ""
  reference: str = ""

  def relabel(self, outcome: Outcome) -> None:
    """Sets a grade that is not the executor's, and hides what it knows."""
    self.outcome, self.said, self.reference = outcome, "", ""

  @property
  def correct(self) -> bool:
    """Whether the answer is correct."""
    return bool(self.outcome)


def solve_prompt(
  policy: Policy, task_type: str, task: Task, prompt_builder: PromptBuilder
) -> types.Prompt:
  """Returns a task's solver prompt, which does not contain the answer."""
  return policy.prompt(prompt_builder.solve(task_type, task), task)


async def solve(
  policy: Policy,
  jobs: SharedJobs,
  call: AZRCall,
  prompt_number: int,
  task_type: str,
  task: Task,
  prompt_builder: PromptBuilder,
  n: int,
  is_voted: bool,
) -> list[Solution]:
  """Returns n solutions of a task, each graded as it arrives.

  Args:
    policy: samples the solutions.
    jobs: grades the solutions.
    call: the purpose of the solutions, a part of the random key.
    prompt_number: a part of the random key, unique among tasks of the call.
    task: the task to solve.
    prompt_builder: builds the prompt.
    n: the number of solutions.
    is_voted: whether to read each solution's vote on the task's label.
  """
  return await solve_each(
    *(policy, jobs, call, [prompt_number], task_type, [task]),
    *(prompt_builder, n, is_voted),
  )


async def solve_each(
  policy: Policy,
  jobs: SharedJobs,
  call: AZRCall,
  prompt_numbers: Sequence[int],
  task_type: str,
  tasks: Sequence[Task],
  prompt_builder: PromptBuilder,
  n: int = 1,
  is_voted: bool = False,
) -> list[Solution]:
  """Returns n solutions of each task; see `solve`."""
  prompts = [
    solve_prompt(policy, task_type, task, prompt_builder) for task in tasks
  ]

  def submit(
    index: int, completion: types.Completion
  ) -> "Future[solving.VotedOutcome]":
    grades = jobs.submit(
      functools.partial(
        solving.submit_grades,
        task_type=task_type,
        task=tasks[index],
        responses=(completion.text,),
        answer_format=prompt_builder.answer_format,
        is_voted=is_voted,
      )
    )
    return futures.then(grades, lambda done: done[0])

  samples = policy.sample(prompts, n, prompt_numbers=prompt_numbers, call=call)
  graded = await collect.sample_and_grade(samples, submit, jobs)
  return [
    _solution(
      prompt,
      solution.completion,
      solution.grade,
      task_type,
      prompt_builder.answer_format,
    )
    for prompt, group in zip(prompts, graded, strict=True)
    for solution in group
  ]


def _solution(
  prompt: types.Prompt,
  completion: types.Completion,
  grade: solving.VotedOutcome,
  task_type: str,
  answer_format: str,
) -> Solution:
  """Returns a solution with the executor's grade."""
  outcome = _outcome(grade)
  is_right_otherwise = bool(outcome) and task_type in _MANY_ANSWERS
  return Solution(
    prompt=prompt,
    completion=completion,
    task_type=task_type,
    formatted=parsing.well_formatted(completion.text, answer_format),
    outcome=outcome,
    truth=grade.outcome,
    vote=grade.vote,
    computed=grade.computed,
    said=grade.said,
    reference=""
    if is_right_otherwise
    else solving.reference(task_type, prompt.task),
  )


def _outcome(grade: solving.VotedOutcome) -> Outcome:
  """Returns the executor's outcome; INCORRECT, pending a vote, without one."""
  return Outcome.INCORRECT if grade.outcome is None else grade.outcome
