r"""Separates units, percent signs and words such as "million" from a value.

Any noun can be a unit: `12 apples` is 12 with the unit apple. Words that change
a value are not units (`5 squared`, `12 or 13`, `3\text{ halves}`). A single
letter is a unit only in a text font (`5\text{ m}`). Known units are converted:
`5\text{ m}` equals `500\text{ cm}`.

| reference | correct | wrong |
| --- | --- | --- |
| `5\text{ cm}` | `5`, `0.05\text{ m}` | `5\text{ m}` |
| `12` | `12` with any unit | |
| `\frac12` | `50\%` | `0.5\%` |
| `50\%` | `50`, `0.5` | `0.5\%` |
| a whole number above 1, such as `40` | `40\%`, `4000\%` | `0.4\%` |
"""

import dataclasses
from fractions import Fraction

from azr_jax.grading.mathematics import numbers, symbols
from azr_jax.grading.mathematics import unit_tables as tables
from azr_jax.grading.mathematics.nodes import Node, Nodes, sign

_VOWELS = frozenset("aeiouy")
_MAX_WORDS = 6
_MAX_POWER = 9
_IGNORED = (sign("."), sign("*"), sign("-"))


@dataclasses.dataclass(frozen=True)
class Unit:
  """A unit of measure, or a noun that is counted.

  Attributes:
    factor: the size of the unit, in the units of `powers`.
    powers: the base units or nouns with their powers, sorted by name.
  """

  factor: Fraction
  powers: tables.Powers


DEGREE = Unit(Fraction(1), (("degree", 1),))
RADIAN = Unit(Fraction(1), (("radian", 1),))
_DOLLAR = Unit(Fraction(1), (("dollar", 1),))


@dataclasses.dataclass(frozen=True)
class Quantity:
  """A value with its unit.

  Attributes:
    nodes: the value without its scale, unit and percent sign.
    scale: the factor of a word after the value, such as "million".
    is_percent: whether the value is a percentage.
    unit: the unit. None if there is none, or only the word "units".
  """

  nodes: Nodes
  scale: int = 1
  is_percent: bool = False
  unit: Unit | None = None

  def value(self) -> Fraction | None:
    """Returns the number times its scale, or None. Ignores a percent sign."""
    number = numbers.read(self.nodes)
    return None if number is None else number * self.scale


def same_number(
  wanted: Quantity, given: Quantity, tolerance: numbers.Tolerance
) -> bool | None:
  """Returns whether two numbers are the same, None if one is not a number."""
  value, other = wanted.value(), given.value()
  if value is None or other is None:
    return None
  if wanted.is_percent:
    return tolerance.holds(value, other) or (
      not given.is_percent and tolerance.holds(value / 100, other)
    )
  if given.is_percent:
    is_count = value.denominator == 1 and value > 1
    return tolerance.holds(value, other / 100) or (
      is_count and tolerance.holds(value, other)
    )
  if wanted.unit is None or given.unit is None:
    return tolerance.holds(value, other)
  return wanted.unit.powers == given.unit.powers and tolerance.holds(
    value * wanted.unit.factor, other * given.unit.factor
  )


def read_quantity(nodes: Nodes) -> Quantity:
  """Separates a value from its unit, if any."""
  minus = nodes[:1] if nodes[:1] == (sign("-"),) else ()
  if nodes[len(minus) : len(minus) + 1] == (sign("$"),):
    inner = read_quantity((*minus, *nodes[len(minus) + 1 :]))
    if inner.unit in (None, _DOLLAR) and not inner.is_percent:
      return dataclasses.replace(inner, unit=_DOLLAR)
    return Quantity(nodes)
  if len(nodes) > 1 and nodes[-1] == sign("%"):
    return Quantity(nodes[:-1], is_percent=True)
  if len(nodes) > 1 and nodes[-1] == sign("$"):
    return Quantity(nodes[:-1], unit=_DOLLAR)
  for start in _starts(nodes):
    found = _separated(nodes[:start], nodes[start:])
    if found is not None:
      return found
  return Quantity(nodes)


def _starts(nodes: Nodes) -> list[int]:
  """Returns the indices where a unit may start: a run of letters or a word."""
  runs, words = [], []
  for index in range(1, len(nodes)):
    node = nodes[index]
    if node.kind == "word" or _is_quotient(node):
      words.append(index)
      break
    if node.kind == "letter" and (
      node.spaced or nodes[index - 1].kind != "letter"
    ):
      runs.append(index)
  return runs[:1] + words


def _is_quotient(node: Node) -> bool:
  r"""Returns whether a node is a fraction of words, as in `10\frac{m}{s}`."""
  return node.text == "frac" and all(
    arg and arg[0].kind == "word" for arg in node.args
  )


def _separated(value: Nodes, rest: Nodes) -> Quantity | None:
  """Reads the words after a value. Returns None if they are not a unit."""
  reader = _Terms()
  if not reader.read(rest) or len(reader.terms) > _MAX_WORDS:
    return None
  terms, scale = reader.terms, 1
  while terms and terms[0].word in tables.SCALES:
    scale *= tables.SCALES[terms[0].word]
    terms = terms[1:]
  if len(terms) == 1 and terms[0].word in tables.PERCENT:
    return Quantity(value, scale, is_percent=True)
  unit = _unit(terms)
  # In `\cos 72^\circ` the angle is in degrees, but the value is not.
  if unit is None or (unit == DEGREE and _has_function(value)):
    return None
  return Quantity(value, scale, unit=unit if unit.powers else None)


def _has_function(nodes: Nodes) -> bool:
  return any(
    node.kind == "command" and node.text in symbols.FUNCTIONS for node in nodes
  )


@dataclasses.dataclass
class _Term:
  """A word of a unit.

  Attributes:
    word: the word in the singular and in lower case.
    power: the power of the word.
    is_text: whether the word is set in a text font.
  """

  word: str
  power: int
  is_text: bool


class _Terms:
  """Reads the words of a unit.

  Attributes:
    terms: the words read so far.
  """

  def __init__(self, side: int = 1):
    """Creates an empty reader in the numerator (1) or the denominator (-1)."""
    self.terms: list[_Term] = []
    self._side, self._next_power = side, 1

  def read(self, nodes: Nodes) -> bool:
    """Adds the words of nodes. Returns whether they can be part of a unit."""
    index = 0
    while index < len(nodes):
      node, run = nodes[index], _run(nodes, index)
      index += max(len(run), 1)
      if run or node.kind == "word":
        fits = self._word(run or node.text, not run)
      elif node.kind == "sup":
        power = numbers.read(node.args[0]) or Fraction(0)
        fits = power.denominator == 1 and self._raise(int(power))
      elif _is_quotient(node):
        sides = [_Terms(self._side), _Terms(-self._side)]
        fits = all(s.read(a) for s, a in zip(sides, node.args, strict=True))
        self.terms += sides[0].terms + sides[1].terms
      else:
        fits = node in _IGNORED or node == sign("/")
        self._side = -1 if node == sign("/") else self._side
      if not fits:
        return False
    return True

  def _word(self, text: str, is_text: bool) -> bool:
    word = _singular(text.casefold())
    if word == "per":
      self._side = -1
    elif word in tables.POWER_PREFIXES:
      self._next_power = tables.POWER_PREFIXES[word]
    elif word in tables.POWER_SUFFIXES and self.terms:
      return self._raise(tables.POWER_SUFFIXES[word])
    else:
      self.terms.append(_Term(word, self._side * self._next_power, is_text))
      self._next_power = 1
    return True

  def _raise(self, power: int) -> bool:
    if not self.terms or not 0 < abs(power) <= _MAX_POWER:
      return False
    if abs(self.terms[-1].power * power) > _MAX_POWER:
      return False
    self.terms[-1].power *= power
    return True


def _run(nodes: Nodes, start: int) -> str:
  """Returns the run of letters from an index, up to a space or non-letter."""
  text = ""
  for node in nodes[start:]:
    if node.kind != "letter" or (text and node.spaced):
      break
    text += node.text
  return text


def _singular(word: str) -> str:
  if word in tables.KNOWN or word in tables.POWER_PREFIXES or len(word) < 3:
    return word
  return word.removesuffix("s")


def _unit(terms: list[_Term]) -> Unit | None:
  factor, powers = Fraction(1), dict[str, int]()
  for term in terms:
    if not _is_unit(term):
      return None
    size, base = tables.KNOWN.get(term.word, (Fraction(1), ((term.word, 1),)))
    factor *= size**term.power
    for name, power in base:
      powers[name] = powers.get(name, 0) + power * term.power
  return Unit(factor, tuple(sorted((n, p) for n, p in powers.items() if p)))


def _is_unit(term: _Term) -> bool:
  word = term.word
  if word in tables.KNOWN and (term.is_text or len(word) > 1):
    return True
  min_letters = 3 if term.is_text or word in tables.SHORT_NOUNS else 4
  return (
    word not in tables.NO_UNIT
    and len(word) >= min_letters
    and not _VOWELS.isdisjoint(word)
  )
