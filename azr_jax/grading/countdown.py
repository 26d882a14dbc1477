"""Whether a response reaches a puzzle's target: 1.0, 0.1 or 0.0.

| | strict (default) | compat: what the published verifier does |
| --- | --- | --- |
| answer | the last closed tag, over lines too | the last tag in one line |
| numbers | the expression's constants | runs of digits, so 1.5 uses 1 and 5 |
| operators | + - * / between two values | also ** and //, signs, decimals |
| value | equal to the target, exactly | closer than 1e-5, in floating point |

1.0: right. 0.1: there is an answer tag, and what it holds is wrong. 0.0: there
is none. Nothing is evaluated as code: both walk the syntax tree, and a power
too large to hold is wrong.

Paper: seed 003, sections 3 and 4.1; its verifier is that of the course project
that it builds on.
"""

import ast
import dataclasses
import re
from collections.abc import Callable
from fractions import Fraction

from azr_jax.executor import literals
from azr_jax.grading.answer_tags import last_answer
from azr_jax.grading.countdown_puzzle import Puzzle

RIGHT, WRONG, NO_ANSWER = 1.0, 0.1, 0.0
MAX_ANSWER_CHARS = 1000
MODES = ("strict", "compat")
# A result of `**` beyond so many bits is no answer to any puzzle.
_MAX_POWER_BITS = 4096
_STRICT_TEXT = re.compile(r"[0-9+\-*/()\s]+")
_COMPAT_TEXT = re.compile(r"[\d+\-*/().\s]+")
_COMPAT_ANSWER = re.compile(r"<answer>(.*?)</answer>")
_COMPAT_DISTANCE = 1e-5

Number = int | float | Fraction


class _Invalid(ValueError):
  """An expression that the verifier does not take; says why."""


@dataclasses.dataclass(frozen=True)
class Verdict:
  """A response's score, and why: `right`, or what is wrong."""

  score: float
  reason: str

  @property
  def right(self) -> bool:
    """Whether the target was reached by the rules."""
    return self.score == RIGHT


def verify(puzzle: Puzzle, response: str, mode: str = "strict") -> Verdict:
  """Scores a response.

  Args:
    puzzle: the numbers and the target.
    response: what the model wrote after the prompt.
    mode: one of `MODES`.
  """
  if mode not in MODES:
    raise ValueError(f"mode={mode!r}: expected one of {MODES}")
  strict = mode == "strict"
  answer = last_answer(response) if strict else _last_line_answer(response)
  if answer is None:
    return Verdict(NO_ANSWER, "no answer tag")
  try:
    value = (_strict_value if strict else _compat_value)(puzzle, answer)
  except (_Invalid, literals.ParseError) as error:
    return Verdict(WRONG, str(error))
  except (ArithmeticError, TypeError, ValueError) as error:
    return Verdict(WRONG, type(error).__name__)
  if strict:
    reached = value == puzzle.target
  else:
    reached = abs(value - puzzle.target) < _COMPAT_DISTANCE
  return Verdict(RIGHT, "right") if reached else Verdict(WRONG, "other value")


def _last_line_answer(response: str) -> str | None:
  found = _COMPAT_ANSWER.findall(response)
  return found[-1].strip() if found else None


def _parse(answer: str, allowed: re.Pattern[str]) -> ast.expr:
  if len(answer) > MAX_ANSWER_CHARS:
    raise _Invalid("too long")
  if not allowed.fullmatch(answer):
    raise _Invalid("other characters")
  tree = literals.guarded_parse(answer, "eval")
  assert isinstance(tree, ast.Expression)
  return tree.body


def _strict_value(puzzle: Puzzle, answer: str) -> Fraction:
  """The exact value of an expression that follows the rules."""
  tree = _parse(answer, _STRICT_TEXT)
  constants = [
    node.value
    for node in ast.walk(tree)
    if isinstance(node, ast.Constant) and isinstance(node.value, int)
  ]
  if sorted(constants) != sorted(puzzle.numbers):
    raise _Invalid("other numbers")
  return Fraction(_evaluate(tree, _STRICT_OPERATORS, Fraction))


def _compat_value(puzzle: Puzzle, answer: str) -> Number:
  digits = [int(run) for run in re.findall(r"\d+", answer)]
  if sorted(digits) != sorted(puzzle.numbers):
    raise _Invalid("other numbers")
  tree = _parse(answer, _COMPAT_TEXT)
  return _evaluate(tree, _COMPAT_OPERATORS, lambda value: value)


def _evaluate(
  node: ast.AST,
  operators: dict[type, Callable[..., Number]],
  constant: Callable[[int | float], Number],
) -> Number:
  if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
    return constant(node.value)
  if isinstance(node, ast.BinOp) and type(node.op) in operators:
    parts = [node.left, node.right]
  elif isinstance(node, ast.UnaryOp) and type(node.op) in operators:
    parts = [node.operand]
  else:
    raise _Invalid("other operators")
  values = [_evaluate(part, operators, constant) for part in parts]
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
_COMPAT_OPERATORS = _STRICT_OPERATORS | {
  ast.FloorDiv: lambda a, b: a // b,
  ast.Pow: _power,
  ast.UAdd: lambda a: +a,
  ast.USub: lambda a: -a,
}
