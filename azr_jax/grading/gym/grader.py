"""Grades answers by reasoning-gym's scorers, strictly and in the executor.

| public scorers | here |
| --- | --- |
| many give up to 0.99 points for a near miss | only a full point is correct |
| some evaluate the answer as code or with sympy | they only see harmless text |
| `countdown` allows joined digits and powers | allows only `+ - * / ( )` |
| `game_of_life_halting` accepts any text | accepts the reference answer |
| `calendar_arithmetic`, `number_sorting` accept near misses | exact only |
| `complex_arithmetic` accepts infinities and NaN | accepts finite numbers |

A scorer does not run model code, but it parses model text. It runs in the
executor, because such text can make it run forever or exhaust the memory.
"""

import re
from concurrent.futures import Future

from azr_jax.executor import Executor, Job, Result, futures, literals
from azr_jax.grading.outcome import Outcome

LIBRARY = "reasoning_gym"
MAX_ANSWER_CHARS = 20_000
_MIN_CORRECT_SCORE = 1.0 - 1e-9
_PROGRAM = """
import reasoning_gym
def f(name, reference, answer):
  score = reasoning_gym.make_scorer(name, reference["settings"]).score_answer
  return float(score(answer=answer, entry=reference["entry"]))
"""
# Harmless answers for scorers that evaluate them: no attributes, no strings, no
# calls except of the functions below. Each character can match in only one way,
# so the patterns take linear time.
_LISTS = re.compile(r"[\d\s,.\[\]'-]*\Z", re.ASCII)
_SUMS = re.compile(r"(?:[\d\s+()-]++|\*(?!\*)|/(?!/))*\Z", re.ASCII)
_JOINED_DIGITS = re.compile(r"\d\s++\d")
_FORMULA = re.compile(
  r"(?:[\d\s+*/(),^|-]|[A-Za-z]\w*+|(?<=\d)\.)*\Z", re.ASCII
)
_FORMULA_WORDS = frozenset(
  "sin cos tan cot sec csc sinh cosh tanh asin acos atan asinh acosh atanh "
  "sqrt exp log ln Abs pi".split()
)
_EVALUATING = frozenset("SNOQI")  # Letters that sympy reads as functions.
_NOT_FINITE = re.compile(r"nan|inf|oo", re.IGNORECASE)
# Sets whose scorers accept near misses or any answer.
_SORTED = "number_sorting"
_EXACT = ("game_of_life_halting", "calendar_arithmetic")


def stored_answer(reference: str) -> str | None:
  """Returns the answer stored in a reference, None if only a scorer knows it.

  Args:
    reference: the text of a dict (see `tasks/questions/gym.py`).
  """
  return literals.literal_value(reference)["entry"]["answer"]


def is_harmless(name: str, answer: str) -> bool:
  """Returns whether the scorer of the set `name` may safely read an answer."""
  if name in ("spiral_matrix", "binary_matrix"):
    return bool(_LISTS.match(answer))
  if name == "countdown":
    return bool(_SUMS.match(answer)) and not _JOINED_DIGITS.search(answer)
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


def _same_numbers(reference_answer: str, answer: str) -> bool:
  """Returns whether two texts list the same numbers, quoted or not."""
  wanted, given = (
    [part.strip(" '\"") for part in text.strip(" []\n").split(",")]
    for text in (reference_answer, answer)
  )
  try:
    return list(map(float, wanted)) == list(map(float, given))
  except ValueError:
    return False


def submit(
  executor: Executor, name: str, reference: str, answer: str | None
) -> "Future[Outcome]":
  """Starts grading an answer.

  Args:
    executor: runs the scorer.
    name: the set's name, which is the task's name without its prefix.
    reference: the question's reference (see `tasks/questions/gym.py`).
    answer: the answer found in a response, None if there is none.

  Raises:
    ValueError: reasoning-gym is not installed.
  """
  if answer is None or not answer.strip() or len(answer) > MAX_ANSWER_CHARS:
    return futures.done(Outcome.INCORRECT)
  stored = stored_answer(reference) if name in (*_EXACT, _SORTED) else None
  if stored is not None and name in _EXACT:
    is_same = answer.strip().casefold() == stored.casefold()
    return futures.done(Outcome.of(is_same))
  if stored is not None:
    return futures.done(Outcome.of(_same_numbers(stored, answer)))
  if not is_harmless(name, answer):
    return futures.done(Outcome.INCORRECT)
  job = Job(
    "gym",
    _PROGRAM,
    (f"{name!a}, {reference}, {answer!a}",),
    libraries=(LIBRARY,),
  )

  def judge(result: Result) -> Outcome:
    score = float(result.outputs[0] or 0.0)
    return Outcome.of(score >= _MIN_CORRECT_SCORE, result)

  return futures.then(executor.submit(job), judge)
