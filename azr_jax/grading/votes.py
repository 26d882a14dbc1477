"""Votes of answers about programs, for majority voting.

A vote is a digest that is equal for equal answers:

| task | answer | digest of |
| --- | --- | --- |
| deduction | an output | its typed value |
| abduction | an input | its typed arguments |
| induction | a program | its outputs on the task's inputs |
| error deduction | an exception's name | the name |

Two inputs that lead to the same output are two different votes, as in TTRL
(arXiv 2504.16084), where only the answers are known. A vote is None if the
answer is missing, is not in the language of `expressions.py`, or hit a limit.
"""

import hashlib
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from typing import TypeAlias

from azr_jax.executor import Executor, Job, Result, futures
from azr_jax.grading import expressions, literals, programs, values

Vote: TypeAlias = str | None


def submit_output(
  executor: Executor, answer: str, may_compute: bool = False
) -> "Future[Vote]":
  """Starts computing the vote of an output.

  Args:
    executor: evaluates expressions.
    answer: a literal or an expression.
    may_compute: whether an expression that computes its value has a vote.
  """
  if not programs.is_gradable(answer):
    return futures.done(None)
  if not may_compute and programs.is_computed(answer):
    return futures.done(None)
  try:
    key = literals.typed_key(answer)
  except literals.ParseError:
    key = None
  if key is not None and not values.may_drop_items(key):
    return futures.done(_of_key(key))
  if not expressions.is_value(answer):
    return futures.done(None)
  evaluated = expressions.submit_value(executor, answer)
  return futures.then(evaluated, lambda result: _of_value(result.outputs[0]))


def submit_input(executor: Executor, answer: str) -> "Future[Vote]":
  """Starts computing the vote of an input: a call's arguments, or blank."""
  if len(answer) > programs.MAX_ANSWER_CHARS:
    return futures.done(None)
  if literals.are_literal_arguments(answer):
    return futures.done(_digest(literals.arguments_text(answer)))
  if not expressions.are_arguments(answer):
    return futures.done(None)

  def read(result: Result) -> Vote:
    text = result.outputs[0] if result.status == "ok" else None
    return None if text is None else _digest(literals.arguments_text(text))

  return futures.then(expressions.submit_arguments(executor, [answer]), read)


def submit_program(
  executor: Executor, code: str, inputs: Sequence[str]
) -> "Future[Vote]":
  """Starts computing the vote of a program, which must handle every input."""
  if not inputs or not programs.is_gradable(code):
    return futures.done(None)

  def read(result: Result) -> Vote:
    votes = [_of_value(output) for output in result.outputs]
    if result.status != "ok" or None in votes:
      return None
    return _digest(" ".join(map(str, votes)))

  job = Job(id="vote", code=code, inputs=tuple(inputs))
  return futures.then(executor.submit(job), read)


def of_error(answer: str) -> Vote:
  """Returns the vote of an exception's name, which may end in `: text`."""
  name = answer.partition(":")[0].strip()
  return _digest(name) if programs.is_gradable(answer) and name else None


def majority(votes: Sequence[Vote]) -> Vote:
  """Returns the most frequent vote, or None if nobody voted.

  The earliest vote wins a tie.

  Args:
    votes: the votes in sample order. Arrival order would make ties random.
  """
  counts: dict[str, int] = {}
  for vote in votes:
    if vote is not None:
      counts[vote] = counts.get(vote, 0) + 1
  return max(counts, key=counts.__getitem__) if counts else None


def _of_value(text: str | None) -> Vote:
  try:
    return None if text is None else _of_key(literals.typed_key(text))
  except literals.ParseError:
    return None


def _of_key(key: Hashable) -> str:
  return _digest(literals.key_text(key))


def _digest(text: str) -> str:
  data = text.encode("utf-8", "surrogatepass")
  return hashlib.blake2b(data, digest_size=16).hexdigest()
