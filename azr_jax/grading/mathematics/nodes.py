"""The syntax nodes of a formula, and functions that work on them.

| kind | text | args |
| --- | --- | --- |
| `number` | digits, maybe with a decimal point or an exponent | |
| `letter` | one letter | |
| `word` | a word set in a text font | |
| `command` | the name without the backslash | the arguments |
| `sign` | an operator, relation, bracket or punctuation mark | |
| `sup`, `sub` | | the superscript or subscript |
| `group` | | the content of braces, if more than one node |
| `matrix` | the environment | the rows, with `&` between the cells |
"""

import dataclasses
import functools

Nodes = tuple["Node", ...]
# A comma that can only separate thousands.
THOUSANDS = "{,}"


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
  """A node of a formula.

  Attributes:
    kind: a kind from the table above.
    text: the node's own characters, if any.
    args: the formulas inside the node.
    spaced: whether a space precedes the node. Equality ignores it.
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
  """Returns the nodes and all their descendants, in text order."""
  found: list[Node] = []
  for node in nodes:
    found.append(node)
    for arg in node.args:
      found += walk(arg)
  return found


def has(nodes: Nodes, kind: str, *texts: str) -> bool:
  """Returns whether any node, at any depth, has the kind and one of the texts.

  Without texts, the kind alone decides.
  """
  return any(
    node.kind == kind and (not texts or node.text in texts)
    for node in walk(nodes)
  )


def substituted(nodes: Nodes, new: dict[Node, Node]) -> Nodes:
  """Replaces nodes at any depth."""
  return tuple(
    new[node]
    if node in new
    else with_args(node, tuple(substituted(arg, new) for arg in node.args))
    for node in nodes
  )


def with_args(node: Node, args: tuple[Nodes, ...]) -> Node:
  """Returns a copy of a node with new arguments."""
  if not args:
    return node
  return Node(node.kind, node.text, args, node.spaced)


def spelled(nodes: Nodes) -> Nodes:
  """Splits words into letters, so that fonts do not affect equality."""
  plain: list[Node] = []
  for node in nodes:
    if node.kind == "word":
      plain += [Node("letter", letter) for letter in node.text]
    else:
      plain.append(with_args(node, tuple(map(spelled, node.args))))
  return tuple(plain)
