r"""Reads ratios and times of day.

Examples: `1:2`, `1\text{ to }2`, `3:4:5`, `11:40\text{ a.m.}`.
"""

import dataclasses

from azr_jax.grading.mathematics import numbers, parts, words
from azr_jax.grading.mathematics.nodes import (
  Node,
  Nodes,
  command,
  sign,
  substituted,
)

_HALVES_OF_DAY = ("am", "pm")


@dataclasses.dataclass(frozen=True)
class Ratio:
  """A ratio or a time of day.

  Attributes:
    terms: the parts between the colons.
    half_of_day: "am", "pm" or "".
  """

  terms: tuple[Nodes, ...]
  half_of_day: str = ""

  def may_be_time(self) -> bool:
    """Returns whether this may be a time of day, such as `10:20`."""
    return len(self.terms[-1]) == 1 and len(self.terms[-1][0].text) == 2

  def is_fraction(self) -> bool:
    """Returns whether this equals a quotient: two terms and not a time."""
    return len(self.terms) == 2 and not self.may_be_time()

  def is_multiple(self, other: "Ratio") -> bool:
    """Returns whether both are numeric ratios in the same proportion."""
    own = [numbers.read(term) for term in self.terms]
    others = [numbers.read(term) for term in other.terms]
    if self.may_be_time() or other.may_be_time():
      return False
    if len(own) != len(others) or not own[0] or not others[0]:
      return False
    factor = own[0] / others[0]
    return all(
      one is not None and two is not None and one == two * factor
      for one, two in zip(own, others, strict=True)
    )

  def fraction(self) -> Nodes:
    """Returns the quotient of the two terms."""
    return (command("frac", *self.terms),)


def read(nodes: Nodes) -> Ratio | None:
  """Reads nodes as a ratio or time, or returns None."""
  colon, to = sign(":"), Node("word", "to")
  if colon not in nodes and to not in nodes:
    return None
  nodes = substituted(nodes, {to: colon})
  terms = parts.split(nodes, (":",))
  if len(terms) < 2:
    return None
  last, half = terms[-1], ""
  suffix = words.read(last[1:])
  if suffix is not None and suffix.letters.casefold() in _HALVES_OF_DAY:
    last, half = last[:1], suffix.letters.casefold()
  terms = [*terms[:-1], last]
  return Ratio(tuple(terms), half) if all(terms) else None
