"""The outcome of grading a response.

| outcome | meaning |
| --- | --- |
| `CORRECT` | the response is correct |
| `INCORRECT` | the response was graded and is not correct |
| `COMPUTED` | the value is right, but the grader had to compute it |
| `TIMEOUT` | a program hit a time limit before the grade was known |
| `LOST` | in every attempt, the process was killed or its worker died |

Only `CORRECT` is rewarded. `COMPUTED` counts as incorrect. `TIMEOUT` and `LOST`
are not evidence that a task is hard (`systems/azr/rewards.py`).
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple, Self

from azr_jax.executor import Result
from azr_jax.executor.job import JOB_TIMEOUT, KILLED, WORKER_DIED
from azr_jax.executor.pool.verdict import TOO_LARGE
from azr_jax.text import excerpts

# Errors of calls that the executor ended but a benchmark's own runner might
# have let finish. Call timeouts are excluded, because benchmarks have them too.
# So is `Unserializable`: `harness.py` reports values that are too large as
# `TOO_LARGE`.
_LIMITS = frozenset(
  (
    TOO_LARGE,
    MemoryError.__name__,
    "Asleep",
    JOB_TIMEOUT,
    KILLED,
    WORKER_DIED,
  )
)
_CALL_TIMEOUT = TimeoutError.__name__


class Outcome(enum.Enum):
  """The outcome of grading. Only `CORRECT` is truthy."""

  CORRECT = "correct"
  INCORRECT = "incorrect"
  COMPUTED = "computed"
  TIMEOUT = "timeout"
  LOST = "lost"

  @classmethod
  def of(cls, correct: bool, *results: Result) -> Self:
    """Returns the outcome of a response.

    Args:
      correct: whether the response is correct.
      *results: the results of the grading jobs. If the response is not
        correct, the first one that timed out or was lost sets the outcome.
    """
    if correct:
      return cls.CORRECT
    for result in results:
      if result.status == "timeout":
        return cls.TIMEOUT
      if result.is_lost:
        return cls.LOST
    return cls.INCORRECT

  def __bool__(self) -> bool:
    return self is Outcome.CORRECT

  @property
  def is_undecided(self) -> bool:
    """Whether a limit ended the grading before the answer was known."""
    return self in (Outcome.TIMEOUT, Outcome.LOST)


class Explained(NamedTuple):
  """An outcome, and what grading showed about a response that is not correct.

  Attributes:
    outcome: how the response was graded.
    said: at least one sentence, about at most one failing case; "" if grading
      showed nothing that the outcome does not say.
  """

  outcome: Outcome
  said: str = ""


def of_answer(outcome: Outcome, answer: str | None) -> Explained:
  """Returns an outcome with a sentence about a wrong answer.

  Args:
    outcome: how the response was graded.
    answer: the answer that a response gives; None if it gives none.
  """
  if outcome is not Outcome.INCORRECT:
    return Explained(outcome)
  if answer is None:
    return Explained(outcome, "There is no final answer.")
  said = f"The final answer {excerpts.quoted(answer)} is wrong."
  return Explained(outcome, said)


def limit_of(
  holds: Sequence[bool], result: Result, is_short: bool = False
) -> str:
  """Returns the executor limit that ended the first failed test.

  Args:
    holds: whether each test holds. Each test is one call of the job.
    result: the result of the job that ran the tests.
    is_short: whether calls get less time than in the benchmark's own runner.
      If so, a timeout counts as a limit.

  Returns:
    The error's name. Empty if every test holds, or if the first failure is a
    wrong value or an exception.
  """
  first = list(holds).index(False) if not all(holds) else -1
  if first < 0 or result.outputs[first] is not None:
    return ""
  if result.status == "timeout" and first < result.finished:
    return ""  # The program raised an exception before the timeout.
  is_timeout = is_short and result.error == _CALL_TIMEOUT
  return result.error or "" if result.error in _LIMITS or is_timeout else ""


def best(outcomes: "tuple[Outcome, ...]") -> Outcome:
  """Returns the best outcome among several readings of one response."""
  order = "CORRECT", "TIMEOUT", "LOST", "COMPUTED"
  for outcome in map(Outcome.__getitem__, order):
    if outcome in outcomes:
      return outcome
  return Outcome.INCORRECT
