r"""Reads named values: `x = 5`, `f(x) = x + 1`, `(x, y) = (3, 4)`.

| text | names | values |
| --- | --- | --- |
| `x=3, y=4`; `x=3\text{ and }y=4` | x, y | 3, 4 |
| `(x,y)=(3,4)` | x, y | 3, 4 |
| `x=y=z=1` | x, y, z | 1, 1, 1 |

The left side of an equation is a name if it has letters but no number, power or
root: `AB`, `m+n`, `\angle ABC`, `\cos A`, `P(2)`, but not `x^2` or `2x`.
"""

import dataclasses

from azr_jax.grading.mathematics import parts, symbols
from azr_jax.grading.mathematics.nodes import (
  Node,
  Nodes,
  sign,
  spelled,
  substituted,
  walk,
)

_COORDINATES = "xyzw"
_NAME_SIGNS = frozenset(("+", "*", "/", "(", ")", "|", "'", ",", "[", "]"))
_NAME_COMMANDS = frozenset(
  "angle triangle odot frac overline vec hat cos sin tan max min det lim "
  "mathcal mathbb mathfrak parallel ell Re Im".split()
)
_INVERSE = Node("sup", args=((sign("-"), Node("number", "1")),))


@dataclasses.dataclass(frozen=True)
class Assignment:
  """Values of several names.

  Attributes:
    names: the names, in text order.
    values: the value of each name.
  """

  names: tuple[Nodes, ...]
  values: tuple[Nodes, ...]

  def ordered(self) -> tuple[Nodes, ...]:
    """Returns the values in order, sorted by name if the names are x, y, z."""
    letters = ["".join(node.text for node in name) for name in self.names]
    if all(name in _COORDINATES for name in letters):
      order = sorted(
        range(len(letters)), key=lambda i: _COORDINATES.index(letters[i])
      )
      return tuple(self.values[index] for index in order)
    return self.values


@dataclasses.dataclass(frozen=True)
class Named:
  """A named value.

  Attributes:
    name: the left side.
    values: the exact right sides. The value must equal all of them.
  """

  name: Nodes
  values: tuple[Nodes, ...]


def is_name(nodes: Nodes) -> bool:
  """Returns whether the left side of an equation is just a name."""
  if not nodes or nodes[0] == sign("-"):
    return False
  letters, depth = 0, 0
  for index, node in enumerate(nodes):
    is_call = index and _is_named(nodes[index - 1])
    if depth or (is_call and node == sign("(")):
      depth += (node == sign("(")) - (node == sign(")"))
    elif _is_named(node):
      letters += 1
    elif node.kind == "command" and node.text in _NAME_COMMANDS:
      if not all(is_name(arg) for arg in node.args):
        return False
      letters += len(node.args)
    elif node.kind == "sub":
      continue
    elif node == _INVERSE and index:
      continue
    elif node.kind != "sign" or node.text not in _NAME_SIGNS:
      return False
  return letters > 0


def _is_named(node: Node) -> bool:
  return node.kind in ("letter", "word", "sub") or (
    node.kind == "command" and node.text in symbols.GREEK and node.text != "pi"
  )


def named(nodes: Nodes) -> Named | None:
  r"""Reads the name and the exact sides of `x = 5` or `x \approx 5`.

  Sides after an approximation sign are dropped, unless there are no others.
  """
  sides, signs = parts.sides(nodes)
  if not signs or not set(signs) <= {"=", "~"}:
    return None
  name: Nodes = ()
  if not sides[0] or is_name(sides[0]):
    name, sides, signs = sides[0], sides[1:], signs[1:]
  exact = signs.index("~") + 1 if "~" in signs else len(sides)
  if not all(sides):
    return None
  return Named(name, tuple(sides[:exact]))


def assignment(nodes: Nodes) -> Assignment | None:
  """Reads two or more named values, or returns None."""
  found = parts.split(nodes)
  if len(found) == 1:
    return _of_one_equation(nodes)
  names, values = [], []
  for part in found:
    sides, signs = parts.sides(part)
    if signs != ["="] or not is_name(sides[0]) or not sides[1]:
      return None
    names.append(sides[0])
    values.append(sides[1])
  if len(set(names)) < len(names) or _are_indexed(names):
    return None
  return Assignment(tuple(names), tuple(values))


def _of_one_equation(nodes: Nodes) -> Assignment | None:
  sides, signs = parts.sides(nodes)
  if not signs or set(signs) != {"="} or not all(sides):
    return None
  if len(sides) == 2:
    names, values = map(parts.enclosed, sides)
    if names is None or values is None or names.opening != "(":
      return None
    left, right = parts.split(names.inner), parts.split(values.inner)
    if len(left) != len(right) or not all(map(is_name, left)):
      return None
    return Assignment(tuple(left), tuple(right)) if len(left) > 1 else None
  if not all(len(side) == 1 and is_name(side) for side in sides[:-1]):
    return None
  count = len(sides) - 1
  return Assignment(tuple(sides[:-1]), (sides[-1],) * count)


def _are_indexed(names: list[Nodes]) -> bool:
  """Returns whether names are one indexed letter, such as roots x_1, x_2."""
  return all(
    len(name) == 2 and name[1].kind == "sub" and name[0] == names[0][0]
    for name in names
  )


def same(name: Nodes, other: Nodes) -> bool:
  """Returns whether two names are the same. `y` is the same as `f(x)`."""
  if spelled(name) == spelled(other):
    return True
  return (_is_y(name) and _is_of_x(other)) or (_is_of_x(name) and _is_y(other))


def _is_y(name: Nodes) -> bool:
  return name == (Node("letter", "y"),)


def _is_of_x(name: Nodes) -> bool:
  return _is_function(name) and name[2] == Node("letter", "x")


def renamed(wanted: Nodes, given: Named) -> Named:
  """Rewrites `f(t) = t + 1` with the variable of the reference's `f(x)`.

  Args:
    wanted: the name in the reference.
    given: the answer's name and values. They are returned unchanged unless both
      names are functions of one letter.
  """
  if not _is_function(wanted) or not _is_function(given.name):
    return given
  old, new = given.name[2], wanted[2]
  if any(new in walk(value) for value in given.values):
    return given
  name = (*given.name[:2], new, given.name[3])
  values = tuple(substituted(value, {old: new}) for value in given.values)
  return Named(name, values)


def _is_function(name: Nodes) -> bool:
  kinds = [node.kind for node in name]
  return kinds == ["letter", "sign", "letter", "sign"]
