r"""Reads numbers whose base is a subscript: `52_8`, `2A_{16}`, `1010_{two}`."""

import dataclasses

from azr_jax.grading.mathematics import numbers
from azr_jax.grading.mathematics.nodes import Node, Nodes

_NAMES: dict[str, int] = dict(
  zip(
    "two three four five six seven eight nine ten eleven twelve".split(),
    range(2, 13),
    strict=True,
  )
)


@dataclasses.dataclass(frozen=True)
class Based:
  """A number in a base.

  Attributes:
    digits: its digits and capital letters.
    base: the base, which may be negative.
  """

  digits: str
  base: int

  def is_valid(self) -> bool:
    """Returns whether each digit is less than the base."""
    base = abs(self.base)
    return 2 <= base <= 36 and all(int(d, 36) < base for d in self.digits)

  def nodes(self) -> Nodes:
    """Returns the digits as a number without a base."""
    return (Node("number", self.digits),)


def read(nodes: Nodes) -> Based | None:
  """Returns the number in a base that nodes are, or None."""
  if len(nodes) < 2 or nodes[-1].kind != "sub" or nodes[0].kind != "number":
    return None
  digits = "".join(node.text for node in nodes[:-1])
  if not digits.isalnum() or not digits.isascii():
    return None
  if any(node.kind not in ("number", "letter", "word") for node in nodes[:-1]):
    return None
  base = _base(nodes[-1].args[0])
  return None if base is None else Based(digits.upper(), base)


def _base(nodes: Nodes) -> int | None:
  if len(nodes) == 1 and nodes[0].kind == "word":
    return _NAMES.get(nodes[0].text.casefold())
  value = numbers.read(nodes)
  return None if value is None or value.denominator != 1 else int(value)
