"""Splits formulas at separators and relations, and reads bracket contents."""

import dataclasses
from collections.abc import Collection

from azr_jax.grading.mathematics import symbols
from azr_jax.grading.mathematics.nodes import THOUSANDS, Node, Nodes, sign

SEPARATORS = frozenset((",", THOUSANDS, ";", "and", "or"))
_PUNCTUATION = frozenset((",", ".", ";", ":", '"'))


@dataclasses.dataclass(frozen=True)
class Enclosed:
  """A pair of brackets and its content.

  Attributes:
    opening: the opening bracket.
    inner: the nodes between the brackets.
    closing: the closing bracket, which may be of a different type.
  """

  opening: str
  inner: Nodes
  closing: str


def trimmed(nodes: Nodes) -> Nodes:
  """Strips trailing punctuation, and braces or a box around everything.

  Also strips quotes at the start and brackets around a matrix.
  """
  while nodes:
    last, only = nodes[-1], nodes[0]
    if last.kind == "sign" and last.text in _PUNCTUATION:
      nodes = nodes[:-1]
    elif nodes[0] == sign('"'):
      nodes = nodes[1:]
    elif len(nodes) == 1 and (
      only.kind == "group" or (only.kind, only.text) == ("command", "boxed")
    ):
      nodes = only.args[0]
    elif (
      len(nodes) == 3
      and nodes[1].kind == "matrix"
      and (nodes[0].text, last.text) in (("(", ")"), ("[", "]"))
    ):
      nodes = nodes[1:2]
    else:
      break
  return nodes


def enclosed(nodes: Nodes) -> Enclosed | None:
  """Returns the brackets around all of the nodes, or None.

  Brackets of different types may match, as in `[0,1)`.
  """
  if len(nodes) < 2 or nodes[0].kind != "sign" or nodes[-1].kind != "sign":
    return None
  if nodes[0].text not in symbols.OPENING:
    return None
  depth = 0
  for index, node in enumerate(nodes):
    depth += _step(node)
    if depth == 0:
      if index < len(nodes) - 1:
        return None
      return Enclosed(nodes[0].text, nodes[1:-1], node.text)
  return None


def split(
  nodes: Nodes, separators: Collection[str] = SEPARATORS
) -> list[Nodes]:
  """Splits nodes at separators outside of brackets.

  An `and` or `or` directly after another separator (`, and`) is ignored.
  """
  return _split(nodes, separators)[0]


def sides(nodes: Nodes) -> tuple[list[Nodes], list[str]]:
  """Splits nodes at relations outside of brackets; returns sides and signs."""
  return _split(nodes, symbols.RELATIONS)


def _split(
  nodes: Nodes, separators: Collection[str]
) -> tuple[list[Nodes], list[str]]:
  depth, start = 0, 0
  found: list[Nodes] = []
  between: list[str] = []
  for index, node in enumerate(nodes):
    depth += _step(node)
    if depth or node.kind != "sign" or node.text not in separators:
      continue
    part, start = nodes[start:index], index + 1
    if not part and between and node.text in ("and", "or"):
      continue
    found.append(part)
    between.append(node.text)
  return [*found, nodes[start:]], between


def _step(node: Node) -> int:
  if node.kind != "sign":
    return 0
  if node.text in symbols.OPENING:
    return 1
  return -1 if node.text in symbols.CLOSING else 0
