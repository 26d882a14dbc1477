"""How much a script computes, as its steerer is told (seed 001, CodeSteer).

| counts | once for each |
| --- | --- |
| 1 | `for` or `while`; `if`, `elif` or `else`; `try` or `except` in the text |
| 0.25 | binary operation of the syntax tree |
"""

import ast
import dataclasses
import re

SIMPLE = 2.0  # At most: perhaps too little for symbolic computing.
_KEYWORDS = (
  re.compile(r"\b(?:for|while)\b"),
  re.compile(r"\b(?:if|elif|else)\b"),
  re.compile(r"\b(?:try|except)\b"),
)
_OPERATION = 0.25


@dataclasses.dataclass(frozen=True)
class Complexity:
  """A script's score, and what it does.

  Attributes:
    score: see the module; 0 for what is no Python.
    searching: it has a loop, or imports itertools.
    symbolic: it evaluates code, or formats text.
    numerical: it has a binary operation.
  """

  score: float
  searching: bool = False
  symbolic: bool = False
  numerical: bool = False

  @property
  def summary(self) -> str:
    """What a steerer is told."""
    kinds = [
      name
      for name in ("searching", "symbolic", "numerical")
      if getattr(self, name)
    ]
    told = f"complexity {self.score:g} ({', '.join(kinds) or 'no computing'})"
    if self.score <= SIMPLE:
      told += "; the code may be too simple to compute the answer"
    return told


def measure(code: str) -> Complexity:
  """Scores a script by its text and its syntax tree."""
  try:
    nodes = list(ast.walk(ast.parse(code)))
  except (SyntaxError, ValueError, MemoryError, RecursionError):
    return Complexity(0.0)
  score = float(sum(len(one.findall(code)) for one in _KEYWORDS))
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
