"""Dispatches answers to the grader of the question's task."""

from concurrent.futures import Future

from azr_jax.executor import Executor, futures, literals
from azr_jax.grading import bbh
from azr_jax.grading.gym import grader as gym_grader
from azr_jax.grading.outcome import Outcome
from azr_jax.grading.symbench import grader as symbench_grader

_GYM = "gym/"
_BBH = "bbh/"
_SYMBENCH = "symbench/"


def submit(
  executor: Executor, task: str, reference: str, answer: str | None
) -> "Future[Outcome]":
  """Starts grading an answer.

  Args:
    executor: runs the graders that do more than compare texts.
    task: the question's task, such as `gym/products`.
    reference: the reference answer in the task's storage format.
    answer: the answer found in a response, None if there is none.

  Raises:
    ValueError: the task is unknown.
  """
  if task.startswith(_GYM):
    name = task.removeprefix(_GYM)
    return gym_grader.submit(executor, name, reference, answer)
  if task.startswith(_BBH):
    target = literals.literal_value(reference)
    is_correct = answer is not None and bbh.correct(target, answer)
    return futures.done(Outcome.of(is_correct))
  if task.startswith(_SYMBENCH):
    name = task.removeprefix(_SYMBENCH)
    return symbench_grader.submit(executor, name, reference, answer)
  raise ValueError(
    f"task {task!r}: no grader; expected gym/NAME, bbh/NAME or symbench/NAME"
  )


def stored_answer(task: str, reference: str) -> str:
  """Returns a right answer as text; "" if only a scorer knows one.

  Args:
    task: the question's task, such as `gym/products`.
    reference: the reference answer in the task's storage format.
  """
  if task.startswith(_GYM):
    return gym_grader.stored_answer(reference) or ""
  return str(literals.literal_value(reference))
