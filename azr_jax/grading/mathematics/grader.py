r"""Grades a mathematical answer: by rules first, then by algebra if asked for.

| mode | an answer is correct if |
| --- | --- |
| `rules` | `rules.py` says that it equals the reference |
| `math_verify` | so, or if the library math-verify proves it with sympy |

Algebra rounds to six digits, so a decimal of so many digits does not prove an
exact value: `0.693147` is not `\ln 2`.

Algebra runs in the executor, because it can take forever (`9^{9^{9}}`) and
reads model text with a large parser. An answer whose comparison times out is
wrong.
"""

import re
from concurrent.futures import Future

from azr_jax.executor import Executor, Job, futures
from azr_jax.grading.mathematics import rules

MODES = ("rules", "math_verify")
LIBRARY = "math_verify"
_ROUNDED = re.compile(r"\.\d{6}")
# math-verify applies no tolerance to fractions in LaTeX, so it is applied last.
_PROGRAM = r"""
import sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig
from math_verify import parse, verify
KINDS = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())
def read(text):
  return parse("\\boxed{" + text + "}", KINDS, parsing_timeout=None)
def f(reference, answer, absolute, relative):
  parsed = read(reference), read(answer)
  if verify(*parsed, timeout_seconds=None):
    return True
  if not (absolute or relative):
    return False
  try:
    wanted, given = (sympy.N(values[0], 30) for values in parsed)
    tolerance = max(absolute, relative * abs(wanted))
    return bool(abs(wanted - given) <= tolerance)
  except (TypeError, ValueError, IndexError, AttributeError):
    return False
"""


def submit(
  executor: Executor,
  reference: str,
  answer: str | None,
  mode: str = "math_verify",
  tolerance: rules.Tolerance = rules.EXACT,
) -> "Future[bool]":
  """Starts to grade an answer.

  Args:
    executor: runs the algebra of `math_verify`.
    reference: the reference answer.
    answer: the answer in a response; None if there is none.
    mode: one of `MODES`.
    tolerance: how far a number may be from the reference.

  Returns:
    The future of whether the answer is correct.

  Raises:
    ValueError: the mode is unknown, or math-verify is not installed.
  """
  if mode not in MODES:
    raise ValueError(f"mode={mode!r}: expected one of {MODES}")
  if answer is None or not answer.strip():
    return futures.done(False)
  if rules.equal(reference, answer, tolerance):
    return futures.done(True)
  if mode == "rules" or len(answer) > rules.MAX_ANSWER_CHARS:
    return futures.done(False)
  if not rules.comparable(reference, answer):
    return futures.done(False)
  # Two different numbers need no algebra.
  value = rules.number(answer)
  if value is not None and (
    rules.number(reference) is not None
    or (tolerance == rules.EXACT and _ROUNDED.search(answer))
  ):
    return futures.done(False)
  numbers = (tolerance.absolute, tolerance.relative)
  job = Job(
    "math",
    _PROGRAM,
    (f"{_plain(reference)!a}, {_plain(answer)!a}, *{numbers}",),
    libraries=(LIBRARY,),
  )
  return futures.then(
    executor.submit(job), lambda result: result.outputs == ("True",)
  )


def _plain(text: str) -> str:
  """Removes dollars, which would end the formula that holds the text."""
  return text.replace("\\$", "").replace("$", "").strip()
