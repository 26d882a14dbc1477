"""A script's complexity, as shown to CodeSteer's guidance model (R1-CI, 3.1).

| score | for each |
| --- | --- |
| 1 | `for` or `while`; `if`, `elif` or `else`; `try` or `except` in the text |
| 0.25 | binary operation in the syntax tree |
"""

import ast
import dataclasses
import re

from azr_jax.executor import literals

# Scripts up to this score may be too simple for symbolic computing.
SIMPLE = 2.0
_KEYWORDS = (
  re.compile(r"\b(?:for|while)\b"),
  re.compile(r"\b(?:if|elif|else)\b"),
  re.compile(r"\b(?:try|except)\b"),
)
_OPERATION = 0.25


@dataclasses.dataclass(frozen=True)
class Complexity:
  """A script's score and kinds of computing.

  Attributes:
    score: the sum over the module's table; 0 if the text is not Python.
    searching: whether the script has a loop or imports itertools.
    symbolic: whether the script evaluates code or formats text.
    numerical: whether the script has a binary operation.
  """

  score: float
  searching: bool = False
  symbolic: bool = False
  numerical: bool = False

  @property
  def summary(self) -> str:
    """The text shown to the guidance model."""
    kinds = [
      name
      for name in ("searching", "symbolic", "numerical")
      if getattr(self, name)
    ]
    text = f"complexity {self.score:g} ({', '.join(kinds) or 'no computing'})"
    if self.score <= SIMPLE:
      text += "; the code may be too simple to compute the answer"
    return text


def measure(code: str) -> Complexity:
  """Returns the complexity of a script."""
  try:
    nodes = list(ast.walk(literals.guarded_parse(code, "exec")))
  except literals.ParseError:
    return Complexity(0.0)
  score = float(sum(len(pattern.findall(code)) for pattern in _KEYWORDS))
  operations = sum(isinstance(node, ast.BinOp) for node in nodes)
  called = {
    getattr(node.func, "id", getattr(node.func, "attr", ""))
    for node in nodes
    if isinstance(node, ast.Call)
  }
  imported = {
    alias.name
    for node in nodes
    if isinstance(node, ast.Import | ast.ImportFrom)
    for alias in node.names
  } | {n.module for n in nodes if isinstance(n, ast.ImportFrom)}
  return Complexity(
    score + _OPERATION * operations,
    any(isinstance(node, ast.For | ast.While) for node in nodes)
    or "itertools" in imported,
    bool(called & {"eval", "exec", "format"})
    or any(isinstance(node, ast.JoinedStr) for node in nodes),
    operations > 0,
  )
