r"""Compares formulas by algebra, with math-verify and sympy.

math-verify's LaTeX parser and comparison run in a child of the executor. Nodes
are written back to LaTeX first, so math-verify sees only one spelling of each
formula, with decimals and mixed numbers as fractions.

Some pairs never reach math-verify, because it would wrongly call them equal or
cannot read them. `askable` lists the reasons.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from azr_jax.grading.mathematics import numbers, parts, symbols
from azr_jax.grading.mathematics.nodes import (
  Node,
  Nodes,
  command,
  sign,
  walk,
  with_args,
)

LIBRARY = "math_verify"
# The shortest run of letters that may be a word. Shorter runs are products of
# variables.
_WORD_LETTERS = 4
_CONSTANTS = frozenset("ei")
_DEGREES, _PI = Node("word", "degrees"), command("pi")
_HALF_TURN = Node("number", "180")  # In degrees.
_SIGNS = {
  "*": r"\cdot ",
  "<|": "(",
  "|>": ")",
  "[": "(",
  "]": ")",
  "{": "(",
  "}": ")",
  ",": ", ",  # Without the space it would separate thousands.
}
_READABLE = frozenset("+-/!|()") | _SIGNS.keys()
# Names that sympy evaluates wrongly. It treats different letters as coprime,
# for example, so `\gcd(m,n)` would be 1.
_OPAQUE = frozenset("gcd lcm ldots equiv mod bmod pmod parallel perp".split())
PROGRAM = r"""
import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from math_verify import verify
CONFIG = ConversionConfig(lowercase_symbols=False)
def read(text, is_real):
  value = latex2sympy(text, is_real=is_real, convert_degrees=False,
                      normalization_config=None, conversion_config=CONFIG)
  units = [s for s in value.free_symbols if s.name == "i"]
  return value.subs({s: sympy.I for s in units}) if units else value
def close(reference, answer):
  # math-verify drops small differences: to it, 2^{-99} is 3^{-99}.
  if reference == answer:
    return True
  names = sorted((reference - answer).free_symbols, key=str)
  values = {s: sympy.Rational(7 * i + 17, 5 * i + 6)
            for i, s in enumerate(names)}
  digits = 40 if names else 1000
  reference, answer = reference.subs(values), answer.subs(values)
  difference = (reference - answer).doit()
  if difference.is_Rational:
    return difference == 0
  difference = sympy.N(difference, 15, maxn=digits * 3 // 2)
  try:
    size = abs(sympy.N(reference, 15)) or 1
    return bool(abs(difference) <= size * sympy.Integer(10) ** -digits)
  except TypeError:
    return True  # It has functions that are only names.
def equal(reference, answer, absolute, relative):
  proven = verify(reference, answer, numeric_precision=50, timeout_seconds=None)
  if isinstance(reference, sympy.Symbol) or isinstance(answer, sympy.Symbol):
    proven = proven or sympy.simplify(reference - answer) == 0
  if proven and close(reference, answer):
    return True
  if not (absolute or relative):
    return False
  reference, answer = sympy.N(reference, 30), sympy.N(answer, 30)
  tolerance = max(absolute, relative * abs(reference))
  return bool(abs(reference - answer) <= tolerance)
def same(kind, is_real, reference, answer, absolute, relative):
  reference, answer = read(reference, is_real), read(answer, is_real)
  if kind == "equal":
    return equal(reference, answer, absolute, relative)
  quotient = sympy.simplify(reference / answer)
  return bool(quotient.is_number and quotient.is_finite and quotient != 0)
def f(questions, absolute, relative):
  verdicts = ""
  for question in questions:
    try:
      verdict = same(*question, absolute, relative)
    except Exception:
      verdict = False
    verdicts += "1" if verdict else "0"
  return verdicts
"""


@dataclasses.dataclass(frozen=True)
class EqualityQuestion:
  """A question for algebra: are two formulas the same?

  Attributes:
    kind: "equal" asks for equal values. "equation" asks whether both formulas
      are zero at the same points.
    is_real: whether neither formula contains the imaginary unit.
    reference: the reference formula as LaTeX.
    answer: the answer's formula as LaTeX.
  """

  kind: str
  is_real: bool
  reference: str
  answer: str


def arguments(
  questions: Sequence[EqualityQuestion], tolerance: numbers.Tolerance
) -> str:
  """Returns the arguments of `PROGRAM`'s function as Python text."""
  asked = [dataclasses.astuple(q) for q in questions]
  return f"{asked!a}, {tolerance.absolute}, {tolerance.relative}"


def true_questions(
  questions: Sequence[EqualityQuestion], output: str | None
) -> frozenset[EqualityQuestion]:
  """Returns the questions that the program's output answers with yes."""
  verdicts = (output or "").strip("'")
  if len(verdicts) != len(questions):
    return frozenset()
  pairs = zip(questions, verdicts, strict=True)
  return frozenset(asked for asked, verdict in pairs if verdict == "1")


def question(
  kind: str, reference: Nodes, answer: Nodes
) -> EqualityQuestion | None:
  """Returns a question about two formulas, or None if they are not askable."""
  reference, answer = _same_constant(reference, answer)
  reference, answer = _in_radians(reference), _in_radians(answer)
  if not askable(reference, answer):
    return None
  both = walk((*reference, *answer))
  is_real = Node("letter", "i") not in both
  return EqualityQuestion(kind, is_real, written(reference), written(answer))


def askable(reference: Nodes, answer: Nodes) -> bool:
  """Returns whether algebra may compare two formulas.

  It refuses formulas with words, relations or dots, and names that sympy
  evaluates wrongly. It also refuses pairs where two numbers, or a letter and a
  number, stand next to each other, where the answer has variables that the
  reference lacks (`x/x` is not a number), or where runs of letters that may be
  words differ.
  """
  asked, given = walk(reference), walk(answer)
  if not all(map(_is_readable, asked)) or not all(map(_is_readable, given)):
    return False
  if len(parts.split(reference)) > 1 or len(parts.split(answer)) > 1:
    return False
  if _has_loose_digits(reference, False) or _has_loose_digits(answer, True):
    return False
  if not _variables(given) <= _variables(asked):
    return False
  return _long_runs(reference) == _long_runs(answer)


def _is_readable(node: Node) -> bool:
  if node.kind == "sign":
    return node.text in _READABLE
  return node.kind != "word" and node.text not in _OPAQUE


def _variables(nodes: Sequence[Node]) -> frozenset[str]:
  return frozenset(
    node.text
    for node in nodes
    if (node.kind == "letter" and node.text not in _CONSTANTS)
    or (node.kind == "command" and node.text in symbols.GREEK - {"pi"})
  )


def _has_loose_digits(nodes: Nodes, after_letters: bool) -> bool:
  """Returns whether a number directly follows a number or a letter.

  A raised number may follow a letter, as in `n4^{k}`.

  Args:
    nodes: the formula to check.
    after_letters: whether to also look for numbers after letters.
  """
  for index in range(1, len(nodes)):
    before, node = nodes[index - 1], nodes[index]
    is_raised = [n.kind for n in nodes[index + 1 : index + 2]] == ["sup"]
    if node.kind == "number" and (
      before.kind == "number"
      or (after_letters and before.kind == "letter" and not is_raised)
    ):
      return True
  return any(
    _has_loose_digits(arg, after_letters) for node in nodes for arg in node.args
  )


def _long_runs(nodes: Nodes) -> frozenset[str]:
  """Returns the runs of letters that are long enough to be words."""
  runs, run = set(), ""
  for node in (*nodes, sign("+")):
    if node.kind == "letter":
      run += node.text
      continue
    if len(run) >= _WORD_LETTERS:
      runs.add(run)
    run = ""
    for arg in node.args:
      runs |= _long_runs(arg)
  return frozenset(runs)


def _same_constant(reference: Nodes, answer: Nodes) -> tuple[Nodes, Nodes]:
  """Renames an integration constant `+c` to the reference's `+C`."""
  constant, other = Node("letter", "C"), Node("letter", "c")
  if reference[-2:] == (sign("+"), constant) and other not in reference:
    if answer[-2:] == (sign("+"), other) and constant not in answer:
      answer = (*answer[:-1], constant)
  return reference, answer


def _in_radians(nodes: Nodes) -> Nodes:
  r"""Converts degrees within a formula, as in `\cos 72^\circ`, to radians."""
  found: list[Node] = []
  for node in nodes:
    if node == _DEGREES and found and found[-1].kind == "number":
      degrees = found.pop()
      found.append(command("frac", (degrees, _PI), (_HALF_TURN,)))
    else:
      found.append(with_args(node, tuple(map(_in_radians, node.args))))
  return tuple(found)


def degrees_in_radians(nodes: Nodes) -> Nodes:
  r"""Returns `\frac{\pi}{180}(...)`: a number of degrees as radians."""
  ratio = command("frac", (_PI,), (_HALF_TURN,))
  return (ratio, sign("("), *nodes, sign(")"))


def written(nodes: Nodes) -> str:
  """Returns nodes as LaTeX in a canonical spelling."""
  return "".join(_written(nodes))


def _written(nodes: Nodes) -> Iterator[str]:
  index = 0
  while index < len(nodes):
    text, taken = _number(nodes[index:])
    if not taken:
      text, taken = _node(nodes[index]), 1
    yield text
    index += taken


def _number(nodes: Nodes) -> tuple[str, int]:
  """Writes a leading decimal, recurring decimal or mixed number as a fraction.

  Returns:
    The LaTeX text and the number of nodes it stands for, 0 if the nodes do not
    start with a number.
  """
  if nodes[0].kind != "number":
    return "", 0
  value, taken = numbers.recurring(nodes)
  if value is None and len(nodes) > 1 and nodes[1].text == "frac":
    value, taken = numbers.read(nodes[:2]), 2
  if value is None:
    value, taken = numbers.decimal(nodes[0]), 1
  if value is None:
    return nodes[0].text, 1
  if value.denominator == 1:
    return str(value.numerator), taken
  return rf"\frac{{{value.numerator}}}{{{value.denominator}}}", taken


def _node(node: Node) -> str:
  args = [written(arg) for arg in node.args]
  match node.kind:
    case "letter":
      return f"{node.text} "
    case "sign":
      return _SIGNS.get(node.text, node.text)
    case "sup":
      return f"^{{{args[0]}}}"
    case "sub":
      return f"_{{{args[0]}}}"
    case "group":
      return f"{{{args[0]}}}"
    case "matrix":
      rows = r"\\".join(args)
      return rf"\begin{{{node.text}}}{rows}\end{{{node.text}}}"
  if node.text == "sqrt" and len(args) == 2:
    return rf"\sqrt[{args[0]}]{{{args[1]}}}"
  braced = "".join(f"{{{arg}}}" for arg in args)
  return rf"\{node.text}{braced}" if braced else rf"\{node.text} "
