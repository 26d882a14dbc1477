r"""Reads sets of real numbers: intervals, inequalities and their unions.

| text | pieces |
| --- | --- |
| `[0,1)`, `[0,1[`, `0\le x<1`, `\{x \mid 0\le x<1\}` | [0, 1) |
| `x>2`, `2<x`, `(2,\infty)`, `x\in(2,\infty)` | (2, infinity) |
| `x<1\text{ or }x>2`, `(-\infty,1)\cup(2,\infty)` | both |
| `|x|<2`, `|x-1|\ge3` | (-2, 2); (-infinity, -2], [4, infinity) |
| `x\ne1`, `\mathbb{R}\setminus\{1\}` | (-infinity, 1), (1, infinity) |
| `\mathbb{R}`, `\text{all real numbers}` | (-infinity, infinity) |

Inequalities are supported if a variable stands alone on one side, or inside
bars with at most a number added. `z` and `w` inside bars are refused, because
they may be complex.
"""

import dataclasses
from fractions import Fraction

from azr_jax.grading.mathematics import names, numbers, parts
from azr_jax.grading.mathematics.nodes import (
  Node,
  Nodes,
  command,
  has,
  sign,
  walk,
)

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
REALS = (command("mathbb", (Node("letter", "R"),)),)
_INFINITY = command("infty")
_BAR = sign("|")
_COMPLEX = (Node("letter", "z"), Node("letter", "w"))


@dataclasses.dataclass(frozen=True)
class Piece:
  """An interval.

  Attributes:
    low: the lower end, None if unbounded.
    low_closed: whether the lower end belongs to the interval.
    high: the upper end, None if unbounded.
    high_closed: whether the upper end belongs to the interval.
  """

  low: Nodes | None = None
  low_closed: bool = False
  high: Nodes | None = None
  high_closed: bool = False

  def is_like(self, other: "Piece") -> bool:
    """Returns whether two intervals are bounded and closed at the same ends."""
    return self._kind() == other._kind()

  def _kind(self) -> tuple[bool, ...]:
    return (
      self.low is None,
      self.low_closed,
      self.high is None,
      self.high_closed,
    )

  def ends(self) -> tuple[Nodes, ...]:
    """Returns the finite ends, lower end first."""
    return tuple(end for end in (self.low, self.high) if end is not None)


@dataclasses.dataclass(frozen=True)
class Region:
  """A set of real numbers.

  Attributes:
    variable: the name of the set's elements, empty if there is none.
    pieces: the intervals whose union is the set.
    name: the name of the set, empty if there is none.
  """

  variable: Nodes
  pieces: tuple[Piece, ...]
  name: Nodes = ()

  def may_be_named(self, other: "Region") -> bool:
    """Returns whether no name of the other set contradicts this one's."""
    return (not self.variable or other.variable in ((), self.variable)) and (
      not self.name or other.name in ((), self.name)
    )


def read(nodes: Nodes) -> Region | None:
  """Returns the set of real numbers that nodes describe, or None.

  Two numbers in round brackets are read as an interval, too.
  """
  whole = parts.enclosed(nodes)
  if whole is not None and (whole.opening, whole.closing) == ("{", "}"):
    return _set_builder(whole.inner)
  clauses = parts.split(nodes, ("or",))
  if len(clauses) > 1:
    return _union([read(clause) for clause in clauses])
  name, sign_text, rest = _membership(nodes)
  if name:
    region = read(rest)
    if region is None:
      return None
    if sign_text == "in":
      return Region(name, region.pieces)
    return dataclasses.replace(region, name=name)
  if has(nodes, "sign", "<", ">", "<=", ">=", "!="):
    return _inequality(nodes)
  pieces = _pieces(nodes)
  return None if pieces is None else Region((), pieces)


def has_relation(nodes: Nodes) -> bool:
  """Returns whether nodes are clearly a set of real numbers.

  Two numbers in matching brackets are not clear: they may be a tuple.
  """
  if has(
    nodes, "sign", "<", ">", "<=", ">=", "!=", "cup", "cap", "setminus", "in"
  ):
    return not _is_listed(nodes)
  if REALS[0] in nodes:
    return True
  name, _, rest = _membership(nodes)
  nodes = rest if name else nodes
  if len(nodes) < 5 or _piece(nodes) is None:
    return False
  brackets = nodes[0].text, nodes[-1].text
  return brackets not in (("(", ")"), ("[", "]"), ("{", "}")) or (
    has(nodes, "command", "infty")
  )


def _is_listed(nodes: Nodes) -> bool:
  r"""Returns whether the set lists its members, as in `x\in\{1,2\}`."""
  _, sign_text, rest = _membership(nodes)
  whole = parts.enclosed(rest)
  return (
    sign_text == "in"
    and whole is not None
    and (whole.opening, whole.closing) == ("{", "}")
    and len(parts.split(whole.inner, ("|", ":"))) == 1
  )


def _membership(nodes: Nodes) -> tuple[Nodes, str, Nodes]:
  r"""Splits `x \in ...` or `M = [...` into name, sign and set."""
  for index, node in enumerate(nodes[:6]):
    if node in (sign("in"), sign("=")) and names.is_name(nodes[:index]):
      return nodes[:index], node.text, nodes[index + 1 :]
  return (), "", nodes


def _set_builder(nodes: Nodes) -> Region | None:
  for index, node in enumerate(nodes):
    if node in (sign("|"), sign(":")):
      variable, _, domain = _membership(nodes[:index])
      if variable and domain != REALS:
        return None
      variable = variable or nodes[:index]
      region = read(nodes[index + 1 :])
      if region is None or region.variable not in ((), variable):
        return None
      return Region((), region.pieces)
  return None


def _union(regions: list[Region | None]) -> Region | None:
  pieces: list[Piece] = []
  variable: Nodes = ()
  for region in regions:
    if region is None or region.variable != (variable or region.variable):
      return None
    variable = region.variable
    pieces += region.pieces
  return Region(variable, tuple(pieces))


def _inequality(nodes: Nodes) -> Region | None:
  clauses = parts.split(nodes, ("and",))
  if len(clauses) == 2:
    return _both(*map(read, clauses))
  sides, signs = parts.sides(nodes)
  distance = _distance(sides, signs)
  if distance is not None:
    return distance
  places = [index for index, side in enumerate(sides) if _is_variable(side)]
  if len(places) != 1 or not all(sides):
    return None
  variable, place = sides[places[0]], places[0]
  if signs == ["!="]:
    point = sides[1 - place]
    return Region(variable, _without(point))
  if "!=" in signs or "=" in signs or "~" in signs or len(sides) > 3:
    return None
  if len(sides) == 3 and (place != 1 or len({s[0] for s in signs}) > 1):
    return None
  piece = Piece()
  for index, relation in enumerate(signs):
    # Orient the relation from the variable to the bound.
    bound, from_variable = sides[index + 1], relation
    if index != place:
      bound, from_variable = sides[index], _FLIPPED[relation]
    closed = from_variable.endswith("=")
    if from_variable[0] == "<":
      piece = dataclasses.replace(piece, high=bound, high_closed=closed)
    else:
      piece = dataclasses.replace(piece, low=bound, low_closed=closed)
  return Region(variable, (piece,))


def _distance(sides: list[Nodes], signs: list[str]) -> Region | None:
  """Returns the region of `|x - a| < b` or a similar inequality."""
  if len(signs) != 1 or signs[0] not in _FLIPPED:
    return None
  (left, right), (relation,) = sides, signs
  if left[:1] != (_BAR,):
    left, right, relation = right, left, _FLIPPED[relation]
  inner = left[1:-1]
  if len(left) < 3 or left[0] != _BAR or left[-1] != _BAR or _BAR in inner:
    return None
  variable, center = _centered(inner)
  if not variable or variable[0] in (*_COMPLEX, *walk(right)):
    return None
  ends = _around(center, right)
  if ends is None:
    return None
  (low, high), closed = ends, relation.endswith("=")
  if relation[0] == "<":
    return Region(variable, (Piece(low, closed, high, closed),))
  below = Piece(high=low, high_closed=closed)
  return Region(variable, (below, Piece(low=high, low_closed=closed)))


def _centered(nodes: Nodes) -> tuple[Nodes, Fraction]:
  """Returns the variable and `a` of `x - a`, `a - x` or `x`.

  The variable is empty if the nodes have another form.
  """
  for index, node in enumerate(nodes):
    if index and node in (sign("-"), sign("+")):
      left, right = nodes[:index], nodes[index + 1 :]
      if not _is_variable(left):
        left, right = right, left
      shift = numbers.read(right)
      if not _is_variable(left) or shift is None:
        return (), Fraction(0)
      return left, shift if node == sign("-") else -shift
  return (nodes if _is_variable(nodes) else ()), Fraction(0)


def _around(center: Fraction, distance: Nodes) -> tuple[Nodes, Nodes] | None:
  """Returns the two points at a distance from the center, lower one first."""
  value = numbers.read(distance)
  if value is not None:
    ends = _number(center - value), _number(center + value)
    return ends if value > 0 else None
  is_formula = distance and distance[0] != sign("-") and not center
  if not is_formula or _is_variable(distance):
    return None
  plain = len(distance) == 1
  low = distance if plain else (sign("("), *distance, sign(")"))
  return (sign("-"), *low), distance


def _number(value: Fraction) -> Nodes:
  top, bottom = (Node("number", str(n)) for n in abs(value).as_integer_ratio())
  nodes = (
    (top,) if value.denominator == 1 else (command("frac", (top,), (bottom,)),)
  )
  return (sign("-"), *nodes) if value < 0 else nodes


def _both(left: Region | None, right: Region | None) -> Region | None:
  """Returns the intersection of a lower and an upper bound."""
  if left is None or right is None or left.variable != right.variable:
    return None
  if len(left.pieces) != 1 or len(right.pieces) != 1:
    return None
  one, other = left.pieces[0], right.pieces[0]
  if one.low is None:
    one, other = other, one
  if one.low is None or one.high is not None:
    return None
  if other.high is None or other.low is not None:
    return None
  piece = Piece(one.low, one.low_closed, other.high, other.high_closed)
  return Region(left.variable, (piece,))


def _is_variable(nodes: Nodes) -> bool:
  if len(nodes) == 2 and nodes[1].kind != "sub":
    return False
  return 1 <= len(nodes) <= 2 and names.is_name(nodes)


def _without(point: Nodes) -> tuple[Piece, ...]:
  return Piece(high=point), Piece(low=point)


def _pieces(nodes: Nodes) -> tuple[Piece, ...] | None:
  if nodes[:1] == REALS and nodes[1:2] in ((sign("setminus"),), (sign("-"),)):
    point = parts.enclosed(nodes[2:])
    if point is None or point.opening != "{":
      return None
    points = parts.split(point.inner)
    return _without(points[0]) if len(points) == 1 and points[0] else None
  pieces = [_piece(part) for part in _unions(nodes)]
  found = tuple(piece for piece in pieces if piece is not None)
  return found if len(found) == len(pieces) else None


def _unions(nodes: Nodes) -> list[Nodes]:
  """Splits a union into its sets. Brackets of intervals need not match."""
  found, start = [], 0
  for index, node in enumerate(nodes):
    if node == sign("cup"):
      found.append(nodes[start:index])
      start = index + 1
  return [*found, nodes[start:]]


def _piece(nodes: Nodes) -> Piece | None:
  if nodes == REALS:
    return Piece()
  if len(nodes) < 3 or nodes[0].kind != "sign" or nodes[-1].kind != "sign":
    return None
  opening, closing = nodes[0].text, nodes[-1].text
  ends = parts.split(nodes[1:-1], (",", ";", "{,}"))
  if (opening, closing) == ("{", "}") and len(ends) == 1:
    return Piece(ends[0], True, ends[0], True)
  if opening not in ("(", "[", "]") or closing not in (")", "]", "["):
    return None
  if len(ends) != 2 or not all(ends):
    return None
  low, high = ends
  low_end = None if low == (sign("-"), _INFINITY) else low
  high_end = None if high in ((_INFINITY,), (sign("+"), _INFINITY)) else high
  return Piece(
    low_end,
    opening == "[" and low_end is not None,
    high_end,
    closing == "]" and high_end is not None,
  )
