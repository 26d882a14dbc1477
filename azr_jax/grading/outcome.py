"""The outcome of grading a response.

| outcome | |
| --- | --- |
| `CORRECT` | it is correct |
| `INCORRECT` | it was graded and is not correct |
| `COMPUTED` | it has the right value, but leaves computing it to the grader |
| `TIMEOUT` | a program reached a time limit before the grade was known |
| `LOST` | a program's process was killed, or its worker died, in every try |

Only `CORRECT` is rewarded. `COMPUTED` counts as incorrect. `TIMEOUT` and `LOST`
are no evidence that a task is hard (`systems/azr/rewards.py`).
"""

import enum
from collections.abc import Sequence
from typing import Self

from azr_jax.executor import Result
from azr_jax.executor.job import JOB_TIMEOUT, KILLED, WORKER_DIED
from azr_jax.executor.pool.verdict import TOO_LARGE

# Errors by which the executor ends a call that a benchmark's own runner might
# have let end. A call's timeout is not among them, as benchmarks have one, too.
# Nor is `Unserializable`: `harness.py` names values that are too large.
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
  """The outcome of grading; it is true only if the response is correct."""

  CORRECT = "correct"
  INCORRECT = "incorrect"
  COMPUTED = "computed"
  TIMEOUT = "timeout"
  LOST = "lost"

  @classmethod
  def of(cls, correct: bool, *results: Result) -> Self:
    """Returns the outcome of a response.

    Args:
      correct: whether it is correct.
      *results: the results of the grading's jobs. If the response is not
        correct, the first result that timed out or was lost is the outcome.
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


def limit_of(
  holds: Sequence[bool], result: Result, is_short: bool = False
) -> str:
  """Returns the executor limit that ended the first failed test.

  Args:
    holds: whether each test holds; each is a call of the result's job.
    result: the result of the job that ran the tests.
    is_short: whether a call has less time than the benchmark's own runner
      allows, so that a timeout counts, too.

  Returns:
    The error's name; empty if every test holds, or if the first failure is a
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
  """Returns the best outcome of the answers that one response was read as."""
  order = "CORRECT", "TIMEOUT", "LOST", "COMPUTED"
  for outcome in map(Outcome.__getitem__, order):
    if outcome in outcomes:
      return outcome
  return Outcome.INCORRECT
