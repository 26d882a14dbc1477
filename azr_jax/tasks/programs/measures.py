"""How complex a program is, and how far from others (AZR, appendix C.4).

| measure | what it is |
| --- | --- |
| `cognitive` | cognitive complexity, by complexipy |
| `cyclomatic` | independent ways through the functions, by radon |
| `volume`, `effort` | Halstead's, by radon |
| `maintainability` | index from 0 to 100, by radon |
| `nodes` | of the syntax tree |
| `distance` | mean pq-gram distance to the references' trees, 0 to 1 |

Trees are compared by their pq-grams (Augsten et al., VLDB 2005), a lower bound
of the tree edit distance in linear time; the exact one of hundreds of programs
would cost more than the step. Imports no JAX, for it runs in the executor.
"""

import ast
import collections
from collections.abc import Iterator, Sequence

import complexipy
from radon import complexity, metrics

P, Q = 2, 3  # Ancestors and siblings of a gram.
MOST_NODES = 2000  # Of a tree; the rest is not looked at.
# Nodes that say nothing of their own.
_SILENT = (ast.Load, ast.Store, ast.Del)
# In place of a relative that a node does not have.
_NONE = "*"

Gram = tuple[str, ...]


def measure(code: str, references: Sequence[str]) -> dict[str, float]:
  """All measures of a program; `distance` only where there are references.

  Raises:
    SyntaxError: the program, or a reference, cannot be parsed.
  """
  tree = ast.parse(code)
  halstead = metrics.h_visit(code).total
  found = {
    "cognitive": cognitive(code),
    "cyclomatic": float(
      sum(block.complexity for block in complexity.cc_visit(code))
    ),
    "volume": float(halstead.volume),
    "effort": float(halstead.effort),
    "maintainability": float(metrics.mi_visit(code, multi=True)),
    "nodes": float(sum(1 for _ in ast.walk(tree))),
  }
  if references:
    own = profile(tree)
    distances = [distance(own, profile(ast.parse(one))) for one in references]
    found["distance"] = sum(distances) / len(distances)
  return found


def warm_up() -> None:
  """Measures a program, so that all lazy imports are done; see the executor."""
  measure("def f(x):\n  return [x + 1 for x in range(3)]", ["x = 1"])


def cognitive(code: str) -> float:
  """Cognitive complexity."""
  return float(complexipy.code_complexity(code).complexity)


def halstead_score(effort: float, cyclomatic: float, volume: float) -> float:
  """One number of three measures, 0 to 1, as the published code has it."""
  return (
    0.5 * min(effort / 1e4, 1.0)
    + 0.3 * min(cyclomatic / 10, 1.0)
    + 0.2 * min(volume / 500, 1.0)
  )


def profile(tree: ast.AST) -> "collections.Counter[Gram]":
  """The pq-grams of a syntax tree, with how often each occurs."""
  grams: collections.Counter[Gram] = collections.Counter()
  nodes = 0
  queue: collections.deque[tuple[ast.AST, Gram]] = collections.deque(
    [(tree, (_NONE,) * (P - 1))]
  )
  while queue and nodes < MOST_NODES:
    node, ancestors = queue.popleft()
    nodes += 1
    stem = (*ancestors, _label(node))
    children = list(_children(node))
    labels = [_label(child) for child in children]
    # A leaf has one gram, of no children.
    around = [_NONE] * (Q - 1) if labels else [_NONE]
    row = [*around, *labels, *around] if labels else [_NONE] * Q
    for start in range(len(row) - Q + 1):
      grams[*stem, *row[start : start + Q]] += 1
    queue.extend((child, stem[1:]) for child in children)
  return grams


def distance(
  one: "collections.Counter[Gram]", other: "collections.Counter[Gram]"
) -> float:
  """1 - 2 |common grams| / |grams of both|: 0 for the same, 1 for no common."""
  common = sum((one & other).values())
  return 1.0 - 2.0 * common / (one.total() + other.total())


def _children(node: ast.AST) -> Iterator[ast.AST]:
  return (
    child
    for child in ast.iter_child_nodes(node)
    if not isinstance(child, _SILENT)
  )


def _label(node: ast.AST) -> str:
  """The kind of a node, with its name or value if it has one."""
  kind = type(node).__name__
  for field in ("id", "arg", "attr", "name", "value"):
    text = getattr(node, field, None)
    if isinstance(text, str) or (field == "value" and kind == "Constant"):
      return f"{kind} {text!r:.40}"
  return kind
