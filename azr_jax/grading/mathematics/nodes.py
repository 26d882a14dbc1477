"""The parts of a formula, and functions of them.

| kind | text | args |
| --- | --- | --- |
| `number` | digits, perhaps with a point or an exponent | |
| `letter` | one letter | |
| `word` | a word in a font for text | |
| `command` | its name without the backslash | its arguments |
| `sign` | an operator, relation, bracket or punctuation mark | |
| `sup`, `sub` | | what is raised or lowered |
| `group` | | what stands in braces, if more than one node |
| `matrix` | its environment | its rows, with `&` between the cells |
"""

import dataclasses
import functools

Nodes = tuple["Node", ...]
# A comma that separates thousands and nothing else.
THOUSANDS = "{,}"


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
  """A part of a formula.

  Attributes:
    kind: what it is.
    text: its characters, if it has any of its own.
    args: the formulas that belong to it.
    spaced: whether a space stands before it; it does not count in comparisons.
  """

  kind: str
  text: str = ""
  args: tuple[Nodes, ...] = ()
  spaced: bool = dataclasses.field(default=False, compare=False)


@functools.lru_cache(maxsize=64)
def sign(text: str) -> Node:
  """Returns the node of a sign."""
  return Node("sign", text)


def number(value: int) -> Node:
  """Returns the node of a whole number."""
  return Node("number", str(value))


def command(name: str, *args: Nodes) -> Node:
  """Returns the node of a command with its arguments."""
  return Node("command", name, args)


def walk(nodes: Nodes) -> list[Node]:
  """Returns the nodes and all nodes in their arguments, in order."""
  found: list[Node] = []
  for node in nodes:
    found.append(node)
    for arg in node.args:
      found += walk(arg)
  return found


def has(nodes: Nodes, kind: str, *texts: str) -> bool:
  """Returns whether a node of a kind, with one of the texts, is anywhere."""
  return any(
    node.kind == kind and (not texts or node.text in texts)
    for node in walk(nodes)
  )


def substituted(nodes: Nodes, new: dict[Node, Node]) -> Nodes:
  """Returns the nodes with others in the place of some, at any depth."""
  return tuple(
    new[node]
    if node in new
    else with_args(node, tuple(substituted(arg, new) for arg in node.args))
    for node in nodes
  )


def with_args(node: Node, args: tuple[Nodes, ...]) -> Node:
  """Returns a node with other arguments."""
  if not args:
    return node
  return Node(node.kind, node.text, args, node.spaced)


def spelled(nodes: Nodes) -> Nodes:
  """Returns the nodes with words as single letters, which fonts may hide."""
  plain: list[Node] = []
  for node in nodes:
    if node.kind == "word":
      plain += [Node("letter", letter) for letter in node.text]
    else:
      plain.append(with_args(node, tuple(map(spelled, node.args))))
  return tuple(plain)
