"""Metrics of a program: its complexity and its distance to other programs.

Paper: AZR, appendix C.4.

| metric | meaning |
| --- | --- |
| `cognitive` | cognitive complexity, by complexipy |
| `cyclomatic` | independent paths through the functions, by radon |
| `volume`, `effort` | Halstead metrics, by radon |
| `maintainability` | index from 0 to 100, by radon |
| `nodes` | number of nodes in the syntax tree |
| `distance` | mean pq-gram distance to the references' trees, from 0 to 1 |

Trees are compared by their pq-grams (Augsten et al., VLDB 2005), a lower bound
of the tree edit distance that takes linear time. Exact distances of hundreds of
programs would take longer than a training step. This module runs in the
executor and therefore does not import JAX.
"""

import ast
import collections
from collections.abc import Iterator, Sequence

import complexipy
from radon import complexity, metrics

P, Q = 2, 3  # Number of ancestors (including the node itself) and of siblings.
MAX_NODES = 2000  # Nodes of a tree beyond this number are ignored.
# These nodes carry no information beyond their parents.
_IGNORED = (ast.Load, ast.Store, ast.Del)
# The label of a missing ancestor or sibling.
_MISSING = "*"

Gram = tuple[str, ...]


def measure(code: str, references: Sequence[str]) -> dict[str, float]:
  """Returns all metrics of a program by name.

  Args:
    references: the programs to compute `distance` to. Without any, `distance`
      is left out.

  Raises:
    SyntaxError: the program or a reference cannot be parsed.
  """
  tree = ast.parse(code)
  halstead = metrics.h_visit(code).total
  program_metrics = {
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
    grams = profile(tree)
    distances = [
      distance(grams, profile(ast.parse(other))) for other in references
    ]
    program_metrics["distance"] = sum(distances) / len(distances)
  return program_metrics


def warm_up() -> None:
  """Measures a small program to trigger all lazy imports before a fork."""
  measure("def f(x):\n  return [x + 1 for x in range(3)]", ["x = 1"])


def cognitive(code: str) -> float:
  """Returns the cognitive complexity of a program."""
  return float(complexipy.code_complexity(code).complexity)


def halstead_score(effort: float, cyclomatic: float, volume: float) -> float:
  """Returns the published code's weighted mean of three metrics, in [0, 1]."""
  return (
    0.5 * min(effort / 1e4, 1.0)
    + 0.3 * min(cyclomatic / 10, 1.0)
    + 0.2 * min(volume / 500, 1.0)
  )


def profile(tree: ast.AST) -> "collections.Counter[Gram]":
  """Counts the pq-grams of a syntax tree."""
  grams: collections.Counter[Gram] = collections.Counter()
  nodes = 0
  queue: collections.deque[tuple[ast.AST, Gram]] = collections.deque(
    [(tree, (_MISSING,) * (P - 1))]
  )
  while queue and nodes < MAX_NODES:
    node, ancestors = queue.popleft()
    nodes += 1
    stem = (*ancestors, _label(node))
    children = list(_children(node))
    labels = [_label(child) for child in children]
    # A leaf has a single gram, padded with missing children.
    padding = [_MISSING] * (Q - 1)
    row = [*padding, *labels, *padding] if labels else [_MISSING] * Q
    for start in range(len(row) - Q + 1):
      grams[*stem, *row[start : start + Q]] += 1
    queue.extend((child, stem[1:]) for child in children)
  return grams


def distance(
  grams: "collections.Counter[Gram]", other: "collections.Counter[Gram]"
) -> float:
  """Returns 1 - 2 |A & B| / (|A| + |B|): 0 for equal trees, 1 for disjoint."""
  common = sum((grams & other).values())
  return 1.0 - 2.0 * common / (grams.total() + other.total())


def _children(node: ast.AST) -> Iterator[ast.AST]:
  return (
    child
    for child in ast.iter_child_nodes(node)
    if not isinstance(child, _IGNORED)
  )


def _label(node: ast.AST) -> str:
  """Returns a node's type, with its name or value if it has one."""
  node_type = type(node).__name__
  for field in ("id", "arg", "attr", "name", "value"):
    value = getattr(node, field, None)
    if isinstance(value, str) or (field == "value" and node_type == "Constant"):
      return f"{node_type} {value!r:.40}"
  return node_type
