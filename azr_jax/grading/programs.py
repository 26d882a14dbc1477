"""Verification of AZR answers (section 3.3.4) with the executor's help.

The gold output stays in this process. A program only ever sees inputs, and
an answer counts by what it is, never by what it would evaluate to.
"""

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import TypeVar

from azr_jax.executor import Executor, Job, Result, literals
from azr_jax.grading.values import values_equal

S = TypeVar("S")
T = TypeVar("T")

MAX_ANSWER_CHARS = 16 * 1024


def deduction_correct(gold: str, answer: str) -> bool:
  """Whether the answer is the gold value."""
  return len(answer) <= MAX_ANSWER_CHARS and values_equal(gold, answer)


def submit_abduction(
  executor: Executor, code: str, gold_output: str, answer: str
) -> "concurrent.futures.Future[bool]":
  """Starts checking that `f(answer)` gives the gold output.

  The answer must be the literal arguments of exactly one call.
  """
  usable = len(answer) <= MAX_ANSWER_CHARS
  if not usable or not literals.call_arguments_are_literals(answer):
    return known(False)
  job = Job(id="abduction", code=code, inputs=(answer,))
  return then(
    executor.submit(job), lambda result: _outputs_equal(result, [gold_output])
  )


def submit_induction(
  executor: Executor,
  answer_code: str,
  inputs: Sequence[str],
  outputs: Sequence[str],
) -> "concurrent.futures.Future[bool]":
  """Starts checking that the answered program is right on every case."""
  if len(answer_code) > MAX_ANSWER_CHARS:
    return known(False)
  job = Job(id="induction", code=answer_code, inputs=tuple(inputs))
  return then(
    executor.submit(job), lambda result: _outputs_equal(result, outputs)
  )


def _outputs_equal(result: Result, golds: Sequence[str]) -> bool:
  return result.status == "ok" and all(
    output is not None and values_equal(gold, output)
    for gold, output in zip(golds, result.outputs, strict=True)
  )


def known(value: T) -> "concurrent.futures.Future[T]":
  """A future that is already done."""
  future: concurrent.futures.Future[T] = concurrent.futures.Future()
  future.set_result(value)
  return future


def then(
  running: "concurrent.futures.Future[S]", convert: Callable[[S], T]
) -> "concurrent.futures.Future[T]":
  """A future of `convert` applied to another future's result."""
  future: concurrent.futures.Future[T] = concurrent.futures.Future()

  def finish(done: "concurrent.futures.Future[S]") -> None:
    if done.cancelled():
      future.cancel()
      return
    try:
      future.set_result(convert(done.result()))
    except Exception as error:  # noqa: BLE001 - raised where it is awaited.
      future.set_exception(error)

  running.add_done_callback(finish)
  return future
