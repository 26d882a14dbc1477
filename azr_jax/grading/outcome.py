"""What grading says of a response.

| outcome | |
| --- | --- |
| `CORRECT` | it is correct |
| `INCORRECT` | it is not, and that was seen |
| `TIMEOUT` | a limit of time ended a program before that was seen |
| `LOST` | a program's process was killed, or its worker died, each time |

Only `CORRECT` earns its writer a reward. The last two are no evidence that a
task is hard (`systems/azr/rewards.py`).
"""

import enum
from typing import Self

from azr_jax.executor import Result


class Outcome(enum.Enum):
  """The outcome of grading; it is true only if the response is correct."""

  CORRECT = "right"
  INCORRECT = "wrong"
  TIMEOUT = "timeout"
  LOST = "lost"

  @classmethod
  def of(cls, correct: bool, *results: Result) -> Self:
    """Returns the outcome of a response.

    Args:
      correct: whether it is correct.
      *results: the jobs that were to show it. If it is not correct, and a limit
        ended one of them, the outcome is the first such limit.
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


def best(outcomes: "tuple[Outcome, ...]") -> Outcome:
  """Returns the outcome of a response that is correct if a reading of it is."""
  for outcome in (Outcome.CORRECT, Outcome.TIMEOUT, Outcome.LOST):
    if outcome in outcomes:
      return outcome
  return Outcome.INCORRECT
