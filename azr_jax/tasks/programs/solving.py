"""The solver's side of program tasks: prompts and grading.

The prompt shows the solver one part of the task (AZR, section 3.2). Responses
are graded against the other part (AZR, section 3.3.4).
"""

import concurrent.futures
import dataclasses
from collections.abc import Sequence

from azr_jax.executor import Executor, futures
from azr_jax.grading import programs as grading
from azr_jax.grading import votes
from azr_jax.grading.outcome import Explained, Outcome, of_answer
from azr_jax.tasks.programs import (
  environment_prompts,
  environments,
  parsing,
  prompts,
)
from azr_jax.tasks.programs.task import (
  ABDUCTION,
  DEDUCTION,
  ERROR_DEDUCTION,
  FORBIDDEN_MODULES,
  InductionTask,
  Instance,
  Task,
  Triplet,
  is_verified,
)


@dataclasses.dataclass(frozen=True)
class VotedOutcome:
  """The outcome of a response, and its vote on the task's answer.

  Attributes:
    outcome: the outcome of grading. None if the task is not verified.
    vote: the answer that the response votes for. None if it has no answer, or
      if votes were not requested.
    computed: whether the response gives the correct output of a deduction task
      as an expression that computes it, instead of a literal.
    said: what grading showed about a wrong answer, as in `Explained`.
  """

  outcome: Outcome | None
  vote: votes.Vote = None
  computed: bool = False
  said: str = ""


def shown_cases(
  task: InductionTask,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Returns the inputs and outputs of the cases that the solver sees.

  The solver sees the first half. Grading uses all cases.
  """
  num_shown = len(task.inputs) // 2
  return task.inputs[:num_shown], task.outputs[:num_shown]


def reference(task_type: str, task: Task) -> str:
  """Returns the answer that a task's prompt hides; "" if it is unknown."""
  if isinstance(task, InductionTask):
    return task.code
  if isinstance(task, Instance):
    return task.answer
  assert isinstance(task, Triplet)
  if not is_verified(task):
    return ""
  return task.input if task_type == ABDUCTION else task.output


def solve_prompt_text(
  task_type: str,
  task: Task,
  prompt_format: str,
  limit_s: float | None = None,
  states_equality: bool = False,
) -> str:
  """Returns the solver's prompt for a task, in the built-in wording.

  Args:
    task_type: one of the task types.
    task: the task. An induction prompt shows half of its cases.
    prompt_format: one of `prompts.PROMPT_FORMATS`.
    limit_s: the limit in CPU seconds per call of an induction program, for the
      full format. None leaves it out.
    states_equality: whether the full format explains how values are compared.
  """
  if isinstance(task, InductionTask):
    return prompts.solve_induction_prompt(
      *shown_cases(task),
      task.message,
      prompt_format,
      limit_s,
      states_equality,
    )
  if isinstance(task, Instance):
    return environment_prompts.solve(task, prompt_format)
  assert isinstance(task, Triplet)
  if task_type == ERROR_DEDUCTION:
    return prompts.solve_error_prompt(task.code, task.input, prompt_format)
  if task_type == DEDUCTION:
    return prompts.solve_deduction_prompt(
      task.code, task.input, prompt_format, states_equality
    )
  return prompts.solve_abduction_prompt(
    task.code, task.output, prompt_format, states_equality
  )


def submit_grades(
  executor: Executor,
  task_type: str,
  task: Task,
  responses: Sequence[str],
  answer_format: str = parsing.FENCED,
  is_voted: bool = False,
) -> concurrent.futures.Future[tuple[VotedOutcome, ...]]:
  """Starts grading responses to a task and collecting their votes.

  Args:
    executor: the executor that runs programs and evaluates answers.
    task_type: deduction, abduction, induction or error deduction.
    task: the task that all responses answer.
    responses: the solver's responses.
    answer_format: one of `parsing.ANSWER_FORMATS`.
    is_voted: whether to collect votes.

  Returns:
    A future of the grades, in the order of the responses.
  """
  voted: concurrent.futures.Future[tuple[votes.Vote, ...]]
  voted = futures.done((None,) * len(responses))
  if is_voted:
    voted = futures.gather(
      [
        _submit_vote(executor, task_type, task, text, answer_format)
        for text in responses
      ]
    )
  if not is_verified(task):
    return futures.then(
      voted, lambda found: tuple(VotedOutcome(None, vote) for vote in found)
    )
  outcomes = _submit_all(executor, task_type, task, responses, answer_format)
  return futures.then(
    outcomes,
    lambda graded: futures.then(
      voted,
      lambda found: tuple(
        VotedOutcome(
          one.outcome,
          vote,
          _is_computed(one.outcome, task_type, text, answer_format),
          one.said,
        )
        for one, vote, text in zip(graded, found, responses, strict=True)
      ),
    ),
  )


def _is_computed(
  outcome: Outcome, task_type: str, response: str, answer_format: str
) -> bool:
  """Returns whether a response gives the correct output as a computation."""
  if task_type != DEDUCTION or not outcome:
    return outcome is Outcome.COMPUTED
  answer = parsing.parse_output_answer(response, answer_format)
  return answer is not None and grading.is_computed(answer)


def _submit_vote(
  executor: Executor,
  task_type: str,
  task: Task,
  response: str,
  answer_format: str,
) -> concurrent.futures.Future[votes.Vote]:
  """Starts to determine the vote of a response."""
  if isinstance(task, InductionTask):
    code = parsing.parse_program_answer(response, answer_format)
    if code is None:
      return futures.done(None)
    return votes.submit_program(executor, code, task.inputs)
  if task_type == ABDUCTION:
    answer = parsing.parse_input_answer(response, answer_format)
    if answer is None:
      return futures.done(None)
    return votes.submit_input(executor, answer)
  answer = parsing.parse_output_answer(response, answer_format)
  if answer is None:
    return futures.done(None)
  if task_type == ERROR_DEDUCTION:
    return futures.done(votes.of_error(answer))
  may_compute = answer_format == parsing.PUBLISHED_CODE
  return votes.submit_output(executor, answer, may_compute)


def submit_grading(
  executor: Executor,
  task_type: str,
  task: Task,
  responses: Sequence[str],
  answer_format: str = parsing.FENCED,
  may_compute: bool = False,
) -> concurrent.futures.Future[tuple[Outcome, ...]]:
  """Starts grading responses to a task (AZR, section 3.3.4).

  Args:
    executor: the executor that runs programs and evaluates answers.
    task_type: deduction, abduction, induction or error deduction.
    task: the task that all responses answer.
    responses: the solver's responses.
    answer_format: one of `parsing.ANSWER_FORMATS`.
    may_compute: whether a deduction answer may be an expression. In the
      published code's format it always may.

  Returns:
    A future of the outcomes, in the order of the responses.
  """
  explained = _submit_all(
    executor, task_type, task, responses, answer_format, may_compute
  )
  return futures.then(
    explained, lambda found: tuple(one.outcome for one in found)
  )


def _submit_all(
  executor: Executor,
  task_type: str,
  task: Task,
  responses: Sequence[str],
  answer_format: str,
  may_compute: bool = False,
) -> concurrent.futures.Future[tuple[Explained, ...]]:
  """Starts grading like `submit_grading`, with what grading shows."""
  if task_type == ABDUCTION and isinstance(task, Triplet):
    answers = [
      parsing.parse_input_answer(text, answer_format) for text in responses
    ]
    return grading.explain_abduction(
      executor, task.code, task.output, answers, forbidden=FORBIDDEN_MODULES
    )
  return futures.gather(
    [
      _submit_grading(
        executor, task_type, task, text, answer_format, may_compute
      )
      for text in responses
    ]
  )


def _submit_grading(
  executor: Executor,
  task_type: str,
  task: Task,
  response: str,
  answer_format: str,
  may_compute: bool,
) -> concurrent.futures.Future[Explained]:
  """Starts grading a response to a task of any type but abduction."""
  if isinstance(task, InductionTask):
    answer = parsing.parse_program_answer(response, answer_format)
    if answer is None:
      return futures.done(of_answer(Outcome.INCORRECT, None))
    return grading.explain_induction(
      executor, answer, task.inputs, task.outputs
    )
  answer = parsing.parse_output_answer(response, answer_format)
  if isinstance(task, Instance):
    return futures.then(
      environments.submit_grading(executor, task, answer),
      lambda outcome: of_answer(outcome, answer),
    )
  assert isinstance(task, Triplet)
  if answer is None:
    return futures.done(of_answer(Outcome.INCORRECT, None))
  if task_type == ERROR_DEDUCTION:
    outcome = Outcome.of(grading.error_correct(task.output, answer))
    return futures.done(of_answer(outcome, answer))
  may_compute |= answer_format == parsing.PUBLISHED_CODE
  return futures.then(
    grading.submit_deduction(executor, task.output, answer, may_compute),
    lambda outcome: of_answer(outcome, answer),
  )
