r"""The rule of ORZ's reward: a response in, an outcome out (ORZ, section 2.3).

An answer is the last box inside the last closed answer tag, and it is right if
it equals the reference. The format alone earns nothing.

| `truncated_grade` | an answer in a response that was truncated after it |
| --- | --- |
| `graded` | is graded like any other, as in the paper |
| `incorrect` | is wrong, as in the published code |

Training, the benchmarks that are graded as its reward is, and so the pass rates
by which problems are selected, all ask this module.
"""

from concurrent.futures import Future

from azr_jax.executor import Executor
from azr_jax.grading.mathematics import extraction, grader, numbers
from azr_jax.grading.outcome import Outcome

GRADED, INCORRECT = "graded", "incorrect"
TRUNCATED_GRADES = (INCORRECT, GRADED)


def find_answer(
  response: str, finish_reason: str, truncated_grade: str
) -> str | None:
  """Returns the answer that a response is graded by, or None.

  Args:
    response: what the model wrote after the prompt.
    finish_reason: why it ended: `stop`, or `length` if it was truncated.
    truncated_grade: one of `TRUNCATED_GRADES`.
  """
  if truncated_grade == INCORRECT and finish_reason != "stop":
    return None
  return extraction.find_answer(response)


def submit(
  executor: Executor,
  reference: str,
  answer: str | None,
  mode: str,
  tolerance: numbers.Tolerance = numbers.EXACT,
) -> "Future[Outcome]":
  """Starts to compare an answer with the reference.

  Args:
    executor: runs the algebra of `math_verify`.
    reference: the reference answer.
    answer: what `find_answer` returned.
    mode: one of `grader.MODES`.
    tolerance: how far a number may be from the reference.
  """
  return grader.submit(executor, reference, answer, mode, tolerance)
