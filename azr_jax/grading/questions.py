"""Grading of the answers to questions, by the task that they are of."""

import ast
from concurrent.futures import Future

from azr_jax.executor import Executor, futures
from azr_jax.grading import bbh
from azr_jax.grading.gym import grader as gym_grader
from azr_jax.grading.symbench import grader as symbench_grader

_GYM = "gym/"
_BBH = "bbh/"
_SYMBENCH = "symbench/"


def submit(
  executor: Executor, task: str, reference: str, answer: str | None
) -> "Future[bool]":
  """Starts the grading of an answer.

  Args:
    executor: where graders run that read it with more than a comparison.
    task: of the question, such as `gym/products`.
    reference: of the question.
    answer: what was found in a reply; None: nothing was.

  Raises:
    ValueError: the task is unknown.
  """
  if task.startswith(_GYM):
    name = task.removeprefix(_GYM)
    return gym_grader.submit(executor, name, reference, answer)
  if task.startswith(_BBH):
    target = ast.literal_eval(reference)
    return futures.done(answer is not None and bbh.correct(target, answer))
  if task.startswith(_SYMBENCH):
    name = task.removeprefix(_SYMBENCH)
    return symbench_grader.submit(executor, name, reference, answer)
  raise ValueError(f"task {task!r}: expected one with a grader, as gym/NAME")
