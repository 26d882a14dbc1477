r"""Grading of a mathematical answer: rules first, then algebra if asked for.

| mode | equal is |
| --- | --- |
| `rules` | what `rules.py` says |
| `math_verify` | that, or what the library math-verify proves with sympy |

Algebra rounds to six digits, so a decimal of that many is no proof of an exact
value: `0.693147` is not `\ln 2`.

Algebra runs in the executor, for it can take forever (`9^{9^{9}}`) and reads
model text with a large parser; a comparison that times out is wrong.
"""

import re
from concurrent.futures import Future

from azr_jax.executor import Executor, Job, futures
from azr_jax.grading.mathematics import rules

MODES = ("rules", "math_verify")
LIBRARY = "math_verify"
_ROUNDED = re.compile(r"\.\d{6}")
# Fractions read from latex are not floats, so tolerance is looked at last.
_PROGRAM = r"""
import sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig
from math_verify import parse, verify
KINDS = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())
def read(text):
  return parse("\\boxed{" + text + "}", KINDS, parsing_timeout=None)
def f(gold, answer, absolute, relative):
  one, other = read(gold), read(answer)
  if verify(one, other, timeout_seconds=None):
    return True
  if not (absolute or relative):
    return False
  try:
    value, given = (sympy.N(found[0], 30) for found in (one, other))
    room = max(absolute, relative * abs(value))
    return bool(abs(value - given) <= room)
  except (TypeError, ValueError, IndexError, AttributeError):
    return False
"""


def submit(
  executor: Executor,
  gold: str,
  answer: str | None,
  mode: str = "math_verify",
  tolerance: rules.Tolerance = rules.EXACT,
) -> "Future[bool]":
  """Starts a comparison.

  Args:
    executor: runs the algebra of `math_verify`.
    gold: the reference.
    answer: what was found in a response; None: nothing was.
    mode: one of `MODES`.
    tolerance: of numbers.

  Returns:
    A future of whether they are equal.

  Raises:
    ValueError: the mode is unknown, or math-verify is not installed.
  """
  if mode not in MODES:
    raise ValueError(f"mode={mode!r}: expected one of {MODES}")
  if answer is None or not answer.strip():
    return futures.done(False)
  if rules.equal(gold, answer, tolerance):
    return futures.done(True)
  if mode == "rules" or len(answer) > rules.LONGEST:
    return futures.done(False)
  if not rules.comparable(gold, answer):
    return futures.done(False)
  # Two numbers that differ need no algebra.
  value = rules.number(answer)
  if value is not None and (
    rules.number(gold) is not None
    or (tolerance == rules.EXACT and _ROUNDED.search(answer))
  ):
    return futures.done(False)
  numbers = (tolerance.absolute, tolerance.relative)
  job = Job(
    "math",
    _PROGRAM,
    (f"{_plain(gold)!a}, {_plain(answer)!a}, *{numbers}",),
    libraries=(LIBRARY,),
  )
  return futures.then(
    executor.submit(job), lambda result: result.outputs == ("True",)
  )


def _plain(text: str) -> str:
  """Text without the dollars that would end the formula it is put into."""
  return text.replace("\\$", "").replace("$", "").strip()
