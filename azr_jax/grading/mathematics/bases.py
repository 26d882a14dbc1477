r"""Reads numbers with an explicit base.

The base is a subscript (`52_8`, `(2A)_{16}`, `1010_{two}`) or follows the word
"base" (`52\text{ base }8`).
"""

import dataclasses

from azr_jax.grading.mathematics import numbers, parts
from azr_jax.grading.mathematics.nodes import Node, Nodes, sign

_TEN = 10
_BASE = Node("word", "base")
_NAMES: dict[str, int] = dict(
  zip(
    "two three four five six seven eight nine ten eleven twelve".split(),
    range(2, 13),
    strict=True,
  )
)


@dataclasses.dataclass(frozen=True)
class Based:
  """A number with an explicit base.

  Attributes:
    digits: the digits and capital letters, without a sign.
    base: the base, which may be negative.
    is_negative: whether the number has a minus sign.
  """

  digits: str
  base: int
  is_negative: bool = False

  def decimal(self) -> Nodes | None:
    """Returns the number as plain digits if the base is ten, or None."""
    if self.base != _TEN or not self.digits.isdecimal():
      return None
    minus = (sign("-"),) if self.is_negative else ()
    return (*minus, Node("number", self.digits))


def read(nodes: Nodes) -> Based | None:
  """Reads nodes as a number with an explicit base, or returns None."""
  is_negative = nodes[:1] == (sign("-"),)
  digits, base = _separated(nodes[is_negative:])
  digits = _unwrapped(digits)
  if not digits or digits[0].kind != "number":
    return None
  if any(node.kind not in ("number", "letter", "word") for node in digits):
    return None
  text = "".join(node.text for node in digits)
  value = _base(base)
  if value is None or not text.isalnum() or not text.isascii():
    return None
  return Based(text.upper(), value, is_negative)


def _separated(nodes: Nodes) -> tuple[Nodes, Nodes]:
  """Splits nodes into digits and base; the base is empty if there is none."""
  if nodes and nodes[-1].kind == "sub":
    return nodes[:-1], nodes[-1].args[0]
  for index, node in enumerate(nodes):
    if node == _BASE:
      return nodes[:index], nodes[index:]
    if node == sign("(") and nodes[index + 1 : index + 2] == (_BASE,):
      return nodes[:index], nodes[index:]
  return nodes, ()


def _unwrapped(nodes: Nodes) -> Nodes:
  """Removes round brackets that enclose all nodes."""
  whole = parts.enclosed(nodes)
  is_round = whole is not None and (whole.opening, whole.closing) == ("(", ")")
  return whole.inner if whole is not None and is_round else nodes


def _base(nodes: Nodes) -> int | None:
  nodes = _unwrapped(nodes)
  if nodes[:1] == (_BASE,):
    nodes = nodes[1:]
  if len(nodes) == 1 and nodes[0].kind == "word":
    return _NAMES.get(nodes[0].text.casefold())
  value = numbers.read(nodes)
  return None if value is None or value.denominator != 1 else int(value)
