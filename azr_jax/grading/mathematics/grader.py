r"""Grades a mathematical answer: first by rules, then by algebra if enabled.

| mode | an answer is correct if |
| --- | --- |
| `rules` | it matches by the rules of `compare.py` alone |
| `math_verify` | it matches by the rules, plus equalities math-verify proves |

The kind of the reference decides how an answer is compared and which formulas
are left to algebra. Algebra runs in the executor, because it can take forever
(`9^{9^{9}}`) and reads model text with a large parser. An answer whose
comparison times out earns no reward.
"""

import functools
import re
from collections.abc import Callable
from concurrent.futures import Future
from fractions import Fraction

from azr_jax.executor import Executor, Job, Result, futures
from azr_jax.grading.mathematics import (
  algebra,
  compare,
  notation,
  numbers,
  tokens,
)
from azr_jax.grading.mathematics.nodes import Nodes
from azr_jax.grading.outcome import Outcome

# Fast path: most references and answers are whole numbers.
_INTEGER = re.compile(r"-?[0-9]{1,18}")
MODES = ("rules", "math_verify")
LIBRARY = algebra.LIBRARY
MAX_ANSWER_CHARS = 1000
MAX_QUESTIONS = 64  # Limits comparisons between two long lists of formulas.


def submit(
  executor: Executor,
  reference: str,
  answer: str | None,
  mode: str = "math_verify",
  tolerance: numbers.Tolerance = numbers.EXACT,
) -> "Future[Outcome]":
  """Starts grading an answer.

  Args:
    executor: runs the algebra of `math_verify`.
    reference: the reference answer.
    answer: the answer found in a response, None if there is none.
    mode: one of `MODES`.
    tolerance: the allowed distance of a number from the reference.

  Raises:
    ValueError: the mode is unknown, or math-verify is not installed.
  """
  if mode not in MODES:
    raise ValueError(f"mode={mode!r}: expected one of {MODES}")
  if answer is None or not answer.strip():
    return futures.done(Outcome.INCORRECT)
  if _INTEGER.fullmatch(reference) and _INTEGER.fullmatch(answer):
    is_same = tolerance.holds(Fraction(reference), Fraction(answer))
    return futures.done(Outcome.of(is_same))
  asked: dict[algebra.EqualityQuestion, None] = {}
  wanted, given = _reference(reference), _read(answer)

  def same(decide: Callable[[algebra.EqualityQuestion], bool]) -> bool:
    def noted(question: algebra.EqualityQuestion) -> bool:
      asked[question] = None
      return decide(question)

    return _same(wanted, given, compare.Comparer(tolerance, noted))

  # Skip algebra if its verdicts cannot matter: the answer is correct even if
  # every question is denied, or incorrect even if every question is affirmed.
  if reference.strip() == answer.strip() or same(lambda question: False):
    return futures.done(Outcome.CORRECT)
  if mode == "rules" or not asked or not same(lambda question: True):
    return futures.done(Outcome.INCORRECT)
  questions = list(asked)
  if len(questions) > MAX_QUESTIONS:
    return futures.done(Outcome.INCORRECT)

  def grade(result: Result) -> Outcome:
    true = algebra.true_questions(questions, result.outputs[0])
    return Outcome.of(same(lambda question: question in true), result)

  job = Job(
    "math",
    algebra.PROGRAM,
    (algebra.arguments(questions, tolerance),),
    libraries=(LIBRARY,),
  )
  return futures.then(executor.submit(job), grade)


def _same(
  reference: Nodes | None, answer: Nodes | None, comparison: compare.Comparer
) -> bool:
  if reference is None or answer is None:
    return False
  return comparison.same(reference, answer)


def _read(text: str) -> Nodes | None:
  """Returns the nodes of a text, None if it is too long or unreadable."""
  if len(text) > MAX_ANSWER_CHARS:
    return None
  try:
    return notation.read(text)
  except tokens.UnreadableError:
    return None


# Cached because all answers of a group share one reference.
_reference = functools.lru_cache(maxsize=1024)(_read)
