"""Scores a response to a Countdown puzzle.

The score is 1.0 for a correct answer, 0.1 for a wrong answer in an answer tag,
and 0.0 without an answer tag.

| | strict (default) | published_code |
| --- | --- | --- |
| answer | the last closed tag, may span lines | the last tag within one line |
| numbers | constants of the expression | runs of digits: 1.5 uses 1 and 5 |
| operators | binary + - * / | also ** and //, signs, decimals |
| value | exactly the target | within 1e-5 of the target, in floating point |

Both modes walk the syntax tree and never evaluate the answer as code. A power
that is too large to compute is wrong.

Paper: Countdown, sections 3 and 4.1. The published verifier is the one of
TinyZero, on which the paper builds.
"""

import ast
import dataclasses
import re
from collections.abc import Callable
from fractions import Fraction

from azr_jax.executor import literals
from azr_jax.grading import answer_tags
from azr_jax.grading.countdown_puzzle import Puzzle
from azr_jax.text import excerpts, tags

CORRECT_SCORE, INCORRECT_SCORE, NO_ANSWER_SCORE = 1.0, 0.1, 0.0
MAX_ANSWER_CHARS = 1000
STRICT, PUBLISHED_CODE = MODES = ("strict", "published_code")
# Size limit of results of `**`. No puzzle needs larger ones.
_MAX_POWER_BITS = 4096
# Nesting limit of operators. Python's own limit differs between versions.
_MAX_DEPTH = 200
_STRICT_TEXT = re.compile(r"[0-9+\-*/()\s]+")
_PUBLISHED_TEXT = re.compile(r"[\d+\-*/().\s]+")
_PUBLISHED_DISTANCE = 1e-5

# Errors of expressions without a value.
_NO_VALUE = ArithmeticError, TypeError, ValueError, RecursionError

Number = int | float | Fraction


class _Invalid(ValueError):
  """The expression breaks the rules. The message says how."""


@dataclasses.dataclass(frozen=True)
class CountdownScore:
  """A response's score. The reason is `correct` or says what is wrong."""

  value: float
  reason: str

  @property
  def correct(self) -> bool:
    """Whether the response reaches the target within the rules."""
    return self.value == CORRECT_SCORE


def verify(puzzle: Puzzle, response: str, mode: str = STRICT) -> CountdownScore:
  """Scores a response.

  Args:
    puzzle: the numbers and the target.
    response: the model's text after the prompt.
    mode: one of `MODES`.

  Raises:
    ValueError: the mode is unknown.
  """
  if mode not in MODES:
    raise ValueError(f"mode={mode!r}: expected one of {MODES}")
  strict = mode == STRICT
  find = answer_tags.last_answer if strict else _last_line_answer
  answer = find(response)
  if answer is None:
    return CountdownScore(NO_ANSWER_SCORE, "no answer tag")
  try:
    value = (_strict_value if strict else _published_value)(puzzle, answer)
  except (_Invalid, literals.ParseError) as error:
    return CountdownScore(INCORRECT_SCORE, str(error))
  except _NO_VALUE as error:
    return CountdownScore(INCORRECT_SCORE, type(error).__name__)
  if strict:
    reached = value == puzzle.target
  else:
    reached = abs(value - puzzle.target) < _PUBLISHED_DISTANCE
  return (
    CountdownScore(CORRECT_SCORE, "correct")
    if reached
    else CountdownScore(INCORRECT_SCORE, "wrong value")
  )


def explain(puzzle: Puzzle, response: str, mode: str = STRICT) -> str:
  """Returns what is wrong with a response, in words; "" if it is correct.

  Args:
    puzzle: the numbers and the target.
    response: the model's text after the prompt.
    mode: one of `MODES`.
  """
  score = verify(puzzle, response, mode)
  if score.correct:
    return ""
  said = [f"Rejected: {score.reason}."]
  find = answer_tags.last_answer if mode == STRICT else _last_line_answer
  answer = find(response)
  if answer is None:
    return said[0]
  used = re.findall(r"\d+", answer[:MAX_ANSWER_CHARS])
  if sorted(used) != sorted(map(str, puzzle.numbers)):
    wanted = ", ".join(map(str, puzzle.numbers))
    said.append(f"It uses {', '.join(used) or 'no number'}, not {wanted}.")
  try:
    allowed = _STRICT_TEXT if mode == STRICT else _PUBLISHED_TEXT
    value = _value(_parse(answer, allowed), mode)
    if value != puzzle.target:
      shown = excerpts.quoted(str(value))
      said.append(f"Its value is {shown}, not {puzzle.target}.")
  except _NO_VALUE:
    pass  # The reason says why.
  return " ".join(said)


def _value(tree: ast.expr, mode: str) -> Number:
  """Returns the value of an expression with any numbers.

  Raises:
    ValueError, ArithmeticError, TypeError, RecursionError: it has none.
  """
  if mode == STRICT:
    return Fraction(_evaluate(tree, _STRICT_OPERATORS, Fraction))
  return _evaluate(tree, _PUBLISHED_OPERATORS, lambda value: value)


def _last_line_answer(response: str) -> str | None:
  return tags.last(
    answer
    for line in response.split("\n")
    for answer in tags.enclosed(line, *answer_tags.TAGS)
  )


def _parse(answer: str, allowed: re.Pattern[str]) -> ast.expr:
  if len(answer) > MAX_ANSWER_CHARS:
    raise _Invalid("too long")
  if not allowed.fullmatch(answer):
    raise _Invalid("unexpected characters")
  tree = literals.guarded_parse(answer, "eval")
  assert isinstance(tree, ast.Expression)
  return tree.body


def _strict_value(puzzle: Puzzle, answer: str) -> Number:
  """Returns the exact value of an expression.

  Raises:
    _Invalid: the expression breaks the strict rules.
  """
  tree = _parse(answer, _STRICT_TEXT)
  constants = [
    node.value
    for node in ast.walk(tree)
    if isinstance(node, ast.Constant) and isinstance(node.value, int)
  ]
  if sorted(constants) != sorted(puzzle.numbers):
    raise _Invalid("wrong numbers")
  return _value(tree, STRICT)


def _published_value(puzzle: Puzzle, answer: str) -> Number:
  digits = [int(run) for run in re.findall(r"\d+", answer)]
  if sorted(digits) != sorted(puzzle.numbers):
    raise _Invalid("wrong numbers")
  return _value(_parse(answer, _PUBLISHED_TEXT), PUBLISHED_CODE)


def _evaluate(
  node: ast.AST,
  operators: dict[type, Callable[..., Number]],
  constant: Callable[[int | float], Number],
  depth: int = 0,
) -> Number:
  if depth > _MAX_DEPTH:
    raise _Invalid("nested too deeply")
  if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
    return constant(node.value)
  if isinstance(node, ast.BinOp) and type(node.op) in operators:
    parts = [node.left, node.right]
  elif isinstance(node, ast.UnaryOp) and type(node.op) in operators:
    parts = [node.operand]
  else:
    raise _Invalid("operator not allowed")
  values = [_evaluate(part, operators, constant, depth + 1) for part in parts]
  return operators[type(node.op)](*values)


def _power(base: Number, exponent: Number) -> Number:
  if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
    if base.bit_length() * exponent > _MAX_POWER_BITS:
      raise _Invalid("power too large")
  result = base**exponent
  if isinstance(result, complex):
    raise _Invalid("complex value")
  return result


_STRICT_OPERATORS: dict[type, Callable[..., Number]] = {
  ast.Add: lambda a, b: a + b,
  ast.Sub: lambda a, b: a - b,
  ast.Mult: lambda a, b: a * b,
  ast.Div: lambda a, b: a / b,
}
_PUBLISHED_OPERATORS = _STRICT_OPERATORS | {
  ast.FloorDiv: lambda a, b: a // b,
  ast.Pow: _power,
  ast.UAdd: lambda a: +a,
  ast.USub: lambda a: -a,
}
