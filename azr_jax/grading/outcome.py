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
from typing import Self

from azr_jax.executor import Result


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


def best(outcomes: "tuple[Outcome, ...]") -> Outcome:
  """Returns the best outcome of the answers that one response was read as."""
  order = "CORRECT", "TIMEOUT", "LOST", "COMPUTED"
  for outcome in map(Outcome.__getitem__, order):
    if outcome in outcomes:
      return outcome
  return Outcome.INCORRECT
