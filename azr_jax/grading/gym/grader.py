"""Grading by the scorers of reasoning-gym, in the executor, made strict.

| public scorers | here |
| --- | --- |
| many give a part of a point for a wrong answer | right is 0.99 or more |
| some evaluate the answer, as code or by sympy | only text of their form |
| `game_of_life_halting` accepts any text | the answer itself |

The scorer runs beside no model's code, but on its text; so it runs where text
that takes forever, or fills the memory, ends nothing else.
"""

import ast
import re
from concurrent.futures import Future

from azr_jax.executor import Executor, Job
from azr_jax.grading import futures

LIBRARY = "reasoning_gym"
LONGEST = 20_000  # Characters of an answer.
_RIGHT = 0.99
_PROGRAM = """
import reasoning_gym
def f(name, reference, answer):
  score = reasoning_gym.ready(name, reference["settings"]).score_answer
  return float(score(answer=answer, entry=reference["entry"]))
"""
# Scorers that evaluate the answer, and the form of one that is harmless: no
# attribute, no call but of these functions, no text within.
_NUMBERS = re.compile(r"[\d\s+*/().,\[\]'-]*\Z")
_FORMULA_WORDS = frozenset(
  "sin cos tan cot sec csc sinh cosh tanh asin acos atan asinh acosh atanh "
  "sqrt exp log ln Abs pi E C".split()
)
_FORMULA = re.compile(r"[\w\s+*/().,^|-]*\Z")


def stored_answer(reference: str) -> str | None:
  """The answer of a question's reference; a few sets have only a scorer."""
  return ast.literal_eval(reference)["entry"]["answer"]


def is_harmless(name: str, answer: str) -> bool:
  """Whether a set's scorer may be given this text."""
  if name in ("spiral_matrix", "binary_matrix", "countdown"):
    return bool(_NUMBERS.match(answer))
  if name in (
    "simple_integration",
    "intermediate_integration",
    "polynomial_multiplication",
  ):
    words = re.findall(r"[A-Za-z_]\w*", answer)
    known = all(len(w) == 1 or w in _FORMULA_WORDS for w in words)
    return known and bool(_FORMULA.match(answer))
  return True


def submit(
  executor: Executor, name: str, reference: str, answer: str | None
) -> "Future[bool]":
  """Starts the grading of an answer.

  Args:
    executor: runs the scorer.
    name: of the set, without the prefix of its task.
    reference: that of the question, see `tasks/questions/gym.py`.
    answer: what was found in a reply; None: nothing was.

  Returns:
    A future of whether it is right.

  Raises:
    ValueError: reasoning-gym is not installed.
  """
  if answer is None or not answer.strip() or len(answer) > LONGEST:
    return futures.done(False)
  if name == "game_of_life_halting":
    return futures.done(answer.strip() == stored_answer(reference))
  if not is_harmless(name, answer):
    return futures.done(False)
  job = Job(
    "gym",
    _PROGRAM,
    (f"{name!a}, {reference}, {answer!a}",),
    libraries=(LIBRARY,),
  )
  return futures.then(
    executor.submit(job),
    lambda result: float(result.outputs[0] or 0.0) >= _RIGHT,
  )
