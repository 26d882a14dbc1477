r"""The ORZ reward: response in, outcome out (ORZ, section 2.3).

The answer is the last box inside the last closed answer tag. It is correct if
it equals the reference. The format alone earns nothing.

| `truncated_grade` | an answer in a response truncated after the answer |
| --- | --- |
| `graded` | is graded like any other, as in the paper |
| `incorrect` | is incorrect, as in the published code |

Training and the benchmarks graded like its reward both use this module, so the
pass rates that select problems use it too.
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
  """Returns the answer to grade in a response, or None.

  Args:
    response: the model's text after the prompt.
    finish_reason: the reason generation ended: `stop`, or `length` if the
      response was truncated.
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
  """Starts grading an answer against the reference.

  Args:
    executor: runs the algebra of `math_verify`.
    reference: the reference answer.
    answer: the answer from `find_answer`.
    mode: one of `grader.MODES`.
    tolerance: the allowed distance of a number from the reference.
  """
  return grader.submit(executor, reference, answer, mode, tolerance)
