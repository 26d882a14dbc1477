"""Grading by the scorers of reasoning-gym, in the executor, made strict.

| public scorers | here |
| --- | --- |
| many give a part of a point, up to 0.99, for what is near | right is 1 |
| some evaluate the answer, as code or by sympy | only text of their form |
| `countdown` lets numbers be glued, or raised to powers | `+ - * / ( )` alone |
| `game_of_life_halting` accepts any text | the answer itself |
| `calendar_arithmetic` and `number_sorting` accept what is near | the answer |
| `complex_arithmetic` accepts what is no number | numbers |

The scorer runs beside no model's code, but on its text; so it runs where text
that takes forever, or fills the memory, ends nothing else.
"""

import ast
import re
from concurrent.futures import Future

from azr_jax.executor import Executor, Job, futures

LIBRARY = "reasoning_gym"
LONGEST = 20_000  # Characters of an answer.
_RIGHT = 1.0 - 1e-9
_PROGRAM = """
import reasoning_gym
def f(name, reference, answer):
  score = reasoning_gym.ready(name, reference["settings"]).score_answer
  return float(score(answer=answer, entry=reference["entry"]))
"""
# Scorers that evaluate the answer, and the form of one that is harmless: no
# attribute, no call but of these functions, no text within.
_LISTS = re.compile(r"[\d\s,.\[\]'-]*\Z", re.ASCII)
_SUMS = re.compile(r"(?:\d+|[\s+()-]|\*(?!\*)|/(?!/))*\Z", re.ASCII)
_FORMULA = re.compile(r"(?:\d+\.?\d*|[A-Za-z]\w*|[\s+*/(),^|-])*\Z", re.ASCII)
_FORMULA_WORDS = frozenset(
  "sin cos tan cot sec csc sinh cosh tanh asin acos atan asinh acosh atanh "
  "sqrt exp log ln Abs pi".split()
)
_EVALUATING = frozenset("SNOQI")  # Letters that sympy takes for functions.
_NOT_FINITE = re.compile(r"nan|inf|oo", re.IGNORECASE)
# Sets whose scorers take what is near for right, or anything.
_SORTED = "number_sorting"
_EXACT = ("game_of_life_halting", "calendar_arithmetic")


def stored_answer(reference: str) -> str | None:
  """The answer of a question's reference; a few sets have only a scorer."""
  return ast.literal_eval(reference)["entry"]["answer"]


def is_harmless(name: str, answer: str) -> bool:
  """Whether a set's scorer may be given this text."""
  if name in ("spiral_matrix", "binary_matrix"):
    return bool(_LISTS.match(answer))
  if name == "countdown":
    return bool(_SUMS.match(answer)) and not re.search(r"\d\s+\d", answer)
  if name == "complex_arithmetic":
    return not _NOT_FINITE.search(answer)
  if name in (
    "simple_integration",
    "intermediate_integration",
    "polynomial_multiplication",
  ):
    words = re.findall(r"[A-Za-z]\w*", answer, re.ASCII)
    known = all(
      w in _FORMULA_WORDS or (len(w) == 1 and w not in _EVALUATING)
      for w in words
    )
    return known and bool(_FORMULA.match(answer))
  return True


def _same_numbers(gold: str, answer: str) -> bool:
  """Whether two texts list the same numbers, in quotes or not."""
  wanted, found = (
    [part.strip(" '\"") for part in text.strip(" []\n").split(",")]
    for text in (gold, answer)
  )
  try:
    return list(map(float, wanted)) == list(map(float, found))
  except ValueError:
    return False


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
  gold = stored_answer(reference) if name in (*_EXACT, _SORTED) else None
  if gold is not None and name in _EXACT:
    return futures.done(answer.strip().casefold() == gold.casefold())
  if gold is not None:
    return futures.done(_same_numbers(gold, answer))
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
