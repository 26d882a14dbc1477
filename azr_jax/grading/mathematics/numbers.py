r"""Reads nodes as an exact number.

| number | examples |
| --- | --- |
| integer, decimal | `073`, `.5`, `1.250`, `1,234.5`, `1{,}000`, `1 000` |
| with an exponent | `3e8`, `3\times10^{8}`, `10^{-3}` |
| fraction, mixed number | `\frac{-1}{3}`, `1/2`, `2\frac13`, `3 1/2` |
| recurring decimal | `0.1\overline{6}`, `0.\dot{1}2\dot{3}`, `0.(3)` |
| a word up to twenty | `\text{five}` |

A comma followed by a space separates two numbers. The number of digits and the
size of exponents are limited.
"""

import dataclasses
from fractions import Fraction

from azr_jax.grading.mathematics import parts
from azr_jax.grading.mathematics.nodes import Node, Nodes, sign

MAX_DIGITS = 400
MAX_EXPONENT = 400
_RECURRING = ("overline", "dot")
_TEN = Node("number", "10")
_WORDS = {
  word: Fraction(value)
  for value, word in enumerate(
    "zero one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen "
    "twenty".split()
  )
}
_MAX_WORD = max(map(len, _WORDS))


@dataclasses.dataclass(frozen=True)
class Tolerance:
  """The allowed distance from the reference: the larger of the two fields.

  Attributes:
    absolute: the distance in the unit of the answer.
    relative: the distance as a fraction of the reference.
  """

  absolute: float = 0.0
  relative: float = 0.0

  def holds(self, reference: Fraction, answer: Fraction) -> bool:
    """Returns whether an answer is close enough to the reference."""
    relative = Fraction(self.relative) * abs(reference)
    return abs(reference - answer) <= max(Fraction(self.absolute), relative)


EXACT = Tolerance()


def read(nodes: Nodes) -> Fraction | None:
  """Reads nodes as one number, or returns None."""
  if nodes[:1] in ((sign("-"),), (sign("+"),)):
    value = _unsigned(nodes[1:])
    return None if value is None else -value if nodes[0].text == "-" else value
  return _unsigned(nodes)


def decimal(node: Node) -> Fraction | None:
  """Returns the value of a node of digits, None if it is too large."""
  if node.text.isdecimal() and len(node.text) <= MAX_DIGITS:
    return Fraction(int(node.text))
  digits, _, exponent = node.text.lower().partition("e")
  if len(digits) > MAX_DIGITS or len(exponent) > 6:
    return None
  if exponent and abs(int(exponent)) > MAX_EXPONENT:
    return None
  return Fraction(digits) * Fraction(10) ** int(exponent or 0)


def recurring(nodes: Nodes) -> tuple[Fraction | None, int]:
  """Reads a recurring decimal at the start of nodes.

  Returns:
    The value, or None, and the number of nodes read.
  """
  text, taken = "", 0
  if nodes[:1] and nodes[0].kind == "number":
    text, taken = nodes[0].text, 1
  if "." not in text:
    if nodes[taken : taken + 1] != (sign("."),):
      return None, 0
    text, taken = text + ".", taken + 1
  repeated, length = _period(nodes[taken:], is_first=text.endswith("."))
  if not repeated.isdecimal() or len(text + repeated) > MAX_DIGITS:
    return None, 0
  fixed = len(text.partition(".")[2])
  tail = Fraction(int(repeated), (10 ** len(repeated) - 1) * 10**fixed)
  return Fraction(text.rstrip(".") or "0") + tail, taken + length


def _period(nodes: Nodes, is_first: bool) -> tuple[str, int]:
  r"""Returns the recurring digits, "" if there are none, and their node count.

  Digits in brackets recur only directly after the decimal point, because
  `0.2(3)` may be a product.
  """
  if not nodes:
    return "", 0
  if is_first and nodes[0] == sign("(") and nodes[2:3] == (sign(")"),):
    return (nodes[1].text, 3) if nodes[1].kind == "number" else ("", 0)
  if not _is_mark(nodes[0]):
    return "", 0
  last = 0
  if nodes[0].text == "dot":  # Dots mark the first and last recurring digit.
    for index, node in enumerate(nodes[1:3], 1):
      if _is_mark(node) and node.text == "dot":
        last = index
        break
  digits = ""
  for node in nodes[: last + 1]:
    inner = node.args[0] if _is_mark(node) else (node,)
    if len(inner) != 1 or inner[0].kind != "number":
      return "", 0
    digits += inner[0].text
  return digits, last + 1


def _is_mark(node: Node) -> bool:
  """Returns whether a node is a command that marks recurring digits."""
  return node.kind == "command" and node.text in _RECURRING


def _unsigned(nodes: Nodes) -> Fraction | None:
  if not nodes:
    return None
  if len(nodes) == 1:
    return _one(nodes[0])
  if nodes[0].kind == "letter" and len(nodes) <= _MAX_WORD:
    is_word = all(node.kind == "letter" for node in nodes)
    letters = "".join(node.text for node in nodes)
    return _WORDS.get(letters.casefold()) if is_word else None
  value, taken = recurring(nodes)
  if value is not None:
    return value if taken == len(nodes) else None
  for read_form in (_with_commas, _scientific, _mixed, _ratio):
    value = read_form(nodes)
    if value is not None:
      return value
  return None


def _one(node: Node) -> Fraction | None:
  if node.kind == "number":
    return decimal(node)
  if node.kind == "word":
    return _WORDS.get(node.text.casefold())
  if (node.kind, node.text) == ("command", "frac"):
    return _divided(*map(read, node.args))
  return None


def _divided(top: Fraction | None, bottom: Fraction | None) -> Fraction | None:
  return None if top is None or not bottom else top / bottom


def _with_commas(nodes: Nodes) -> Fraction | None:
  digits = ""
  for index, node in enumerate(nodes):
    if index % 2:
      if node != sign(","):
        return None
      continue
    whole, point, _ = node.text.partition(".")
    last = index == len(nodes) - 1
    if node.kind != "number" or not whole.isdecimal() or (point and not last):
      return None
    if index and (node.spaced or len(whole) != 3):
      return None
    if not index and len(whole) > 3:
      return None
    digits += node.text
  if len(nodes) % 2 == 0 or "e" in digits.lower():
    return None
  return decimal(Node("number", digits))


def _scientific(nodes: Nodes) -> Fraction | None:
  """Reads `3\\times10^8`, `10^8`, and `1,000\\times10^8`."""
  if len(nodes) < 2 or nodes[-1].kind != "sup" or nodes[-2] != _TEN:
    return None
  power = read(nodes[-1].args[0])
  if power is None or power.denominator != 1 or abs(power) > MAX_EXPONENT:
    return None
  factor: Fraction | None = Fraction(1)
  if len(nodes) > 2:
    if nodes[-3].text not in ("*", "x") or len(nodes) == 3:
      return None
    factor = _unsigned(nodes[:-3])
  return None if factor is None else factor * Fraction(10) ** int(power)


def _mixed(nodes: Nodes) -> Fraction | None:
  """Reads `2\\frac13` and `3 1/2`."""
  whole, rest = nodes[0], nodes[1:]
  if whole.kind != "number" or not whole.text.isdecimal():
    return None
  if len(rest) == 3 and not rest[0].spaced:
    return None
  terms = rest[0].args if len(rest) == 1 else parts.split(rest, ("/",))
  is_fraction = len(rest) == 3 or rest[0].text == "frac"
  if not is_fraction or len(terms) != 2 or not all(map(_is_whole, terms)):
    return None
  part = _divided(*map(read, terms))
  value = decimal(whole)
  return None if part is None or value is None else value + part


def _is_whole(nodes: Nodes) -> bool:
  return (
    len(nodes) == 1 and nodes[0].kind == "number" and nodes[0].text.isdecimal()
  )


def _ratio(nodes: Nodes) -> Fraction | None:
  terms = parts.split(nodes, ("/",))
  if len(terms) != 2 or not all(1 <= len(term) <= 2 for term in terms):
    return None
  return _divided(*map(read, terms))
