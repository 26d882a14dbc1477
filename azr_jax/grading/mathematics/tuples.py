r"""Reads tuples, points and vectors: parts in a fixed order.

`\langle1,2\rangle` equals `(1,2)`, and a point may have a name: `O(0,0)`. A
matrix with one row or column can be read as a vector. Other matrices are
compared cell by cell.
"""

import dataclasses

from azr_jax.grading.mathematics import parts
from azr_jax.grading.mathematics.nodes import THOUSANDS, Node, Nodes

ROUND = ("(", ")")
_OPENING = {"(": "(", "<|": "(", "[": "["}
_CLOSING = {"|>": ")"}
# Environments that are not matrices: determinants, norms and case distinctions.
_OTHERS = ("vmatrix", "Vmatrix", "cases")


@dataclasses.dataclass(frozen=True)
class Tuple:
  """Ordered parts in brackets.

  Attributes:
    brackets: the opening and the closing bracket.
    values: the parts, at least two.
  """

  brackets: tuple[str, str]
  values: tuple[Nodes, ...]


def read(nodes: Nodes) -> Tuple | None:
  """Reads nodes as a tuple, maybe after a point's name, or returns None."""
  if len(nodes) > 1 and nodes[0].kind == "letter" and nodes[0].text.isupper():
    nodes = nodes[1:]
  whole = parts.enclosed(nodes)
  if whole is None or whole.opening not in _OPENING:
    return None
  values = parts.split(whole.inner, (",", ";", THOUSANDS))
  closing = _CLOSING.get(whole.closing, whole.closing)
  brackets = (_OPENING[whole.opening], closing)
  return Tuple(brackets, tuple(values)) if len(values) > 1 else None


def coordinates(nodes: Nodes) -> tuple[Nodes, ...] | None:
  """Returns the parts of a tuple in round brackets or of a vector, or None."""
  if is_matrix(nodes):
    rows = cells(nodes[0])
    return sum(rows, ()) if 1 in (len(rows), len(rows[0])) else None
  found = read(nodes)
  return found.values if found and found.brackets == ROUND else None


def is_matrix(nodes: Nodes) -> bool:
  """Returns whether nodes are a single matrix, in any brackets."""
  return (
    len(nodes) == 1
    and nodes[0].kind == "matrix"
    and nodes[0].text not in _OTHERS
  )


def cells(matrix: Node) -> list[tuple[Nodes, ...]]:
  """Returns the rows of cells of a matrix."""
  return [tuple(parts.split(row, ("&",))) for row in matrix.args]
