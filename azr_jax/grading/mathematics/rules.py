r"""Equality of answers by rules alone: fast, and nothing can hang.

| equal | |
| --- | --- |
| layout | `\dfrac12` and `\frac{1}{2}`, `$5$` and `5`, `\left(1,2\right)` |
| numbers, exactly | `0.5`, `1/2`; `1,000`; `2\frac{1}{3}`; `3\times10^{8}` |
| units, one side without | `5\text{ cm}` and `5`, not `5\text{ m}` |
| percent, degrees, dollars | `50\%`, `50^\circ`, `\$50` and `50` |
| one variable named | `x=5` and `5` |
| choices and words | `(C)`, `\text{C}` and `C`; `East` and `\text{east}` |
| brackets around one part | `(113)` and `113` |
| lists and sets | in any order: `1,2` and `2,1`, `\{1,2\}` and `\{2,1\}` |
| tuples and intervals | in order, with the same brackets |

Unlike the checker that ORZ published, commas count: `2,3` is not 23, `(1,2)` is
not 12, and nothing equals an empty answer.
"""

import dataclasses
import re
from fractions import Fraction

LONGEST = 1000  # Characters of an answer.
_DIGITS = 300  # Of a number.
_EXPONENT = 300
_NOISE = re.compile(
  r"\\(?:left|right|displaystyle|textstyle|quad|qquad|bigl|bigr|Bigl|Bigr)"
  r"(?![A-Za-z])|\\[!,;: ]|~|\\?\$"
)
_FRACTION = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_SHORT_FRACTION = re.compile(
  r"\\frac\s*(?:\{([^{}]*)\}|([0-9A-Za-z]))\s*(?:\{([^{}]*)\}|([0-9A-Za-z]))"
)
_SHORT_ROOT = re.compile(r"\\sqrt\s*([0-9A-Za-z])")
_TEXT = re.compile(
  r"\\(?:text(?:bf|it|rm|normal)?|mathrm|mathbf|mathit|mbox|operatorname)"
  r"\s*\{([^{}]*)\}"
)
_DEGREES = re.compile(r"\^\{?\s*\\circ\s*\}?|\\degrees?(?![A-Za-z])|°")
_NAMED = re.compile(r"[A-Za-z](?:_\{?\w+\}?)?(?:\([A-Za-z]\))?\s*=(?!.*=)\s*")
_CHOICE = re.compile(r"\(?([A-Za-z])\)?[.:]?")
_NUMBER = (
  r"(?:\d{1,3}(?:\{?,\}?\d{3})+|\d+)(?:\.\d+)?|\.\d+|"
  r"\d+(?:\.\d*)?"
)
_POWER = r"(?:(?:\\times|\\cdot|\*|x|×)10\^\{?(-?\+?\d+)\}?|[eE]([-+]?\d+))"
_DECIMAL = re.compile(rf"([-+]?)({_NUMBER})(?:{_POWER})?")
_RATIO = re.compile(
  r"([-+]?)(\d+)?\\frac\{([-+]?[\d.]+)\}\{([-+]?[\d.]+)\}|"
  r"([-+]?[\d.]+)/([-+]?[\d.]+)"
)
# A number, and what is measured: LaTeX text, or words after a space.
_WITH_UNIT = re.compile(
  rf"([-+]?(?:{_NUMBER})(?:\s*{_POWER})?|[-+]?\d*\\frac\{{\d+\}}\{{\d+\}}|"
  r"[-+]?\d+/\d+)(?:\s+|(?=\x00))"
  r"((?:\x00|[A-Za-z]{2})(?:[\x00A-Za-z\s./*]|\^\{?-?\d\}?)*)"
)
_NO_UNIT = re.compile(r"\b(?:and|or|to)\b")
_OPENING, _CLOSING = "([{", ")]}"


@dataclasses.dataclass(frozen=True)
class Tolerance:
  """How far a number may lie from the reference: the larger of both.

  Attributes:
    absolute: in the answer's unit.
    relative: as a share of the reference.
  """

  absolute: float = 0.0
  relative: float = 0.0

  def holds(self, gold: Fraction, answer: Fraction) -> bool:
    """Whether an answer is close enough."""
    share = Fraction(self.relative) * abs(gold)
    return abs(gold - answer) <= max(Fraction(self.absolute), share)


EXACT = Tolerance()


def equal(gold: str, answer: str, tolerance: Tolerance = EXACT) -> bool:
  """Whether two answers are the same by the rules above.

  Args:
    gold: the reference.
    answer: the text that was found in a response.
    tolerance: of numbers.
  """
  if max(len(gold), len(answer)) > LONGEST:
    return gold.strip() == answer.strip()
  return _same(_clean(gold), _clean(answer), tolerance)


def number(text: str) -> Fraction | None:
  """The exact value of a number's text, units left out, or None."""
  return _measure(_clean(text))[0]


def _clean(text: str) -> str:
  text = text.strip()
  for opening, closing in (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$")):
    if text.startswith(opening) and text.endswith(closing):
      text = text[len(opening) : -len(closing)].strip()
  text = text.replace("\u2212", "-").replace("\\%", "").replace("%", "")
  text = _NOISE.sub("", text)
  text = _DEGREES.sub("", text)
  text = _FRACTION.sub(r"\\frac", text)
  text = _SHORT_FRACTION.sub(
    lambda m: (
      rf"\frac{{{(m[1] or m[2] or '').strip()}}}"
      rf"{{{(m[3] or m[4] or '').strip()}}}"
    ),
    text,
  )
  text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
  text = _TEXT.sub(lambda m: "\x00" + m[1].strip() + "\x00", text)
  text = re.sub(r"\s+", " ", text).strip().rstrip(".,;").strip()
  return text


def _same(gold: str, answer: str, tolerance: Tolerance) -> bool:
  if not _bare(gold) or not _bare(answer):
    return False
  if _bare(gold) == _bare(answer):
    return True
  one, unit = _measure(gold)
  other, other_unit = _measure(answer)
  if one is not None and other is not None:
    return tolerance.holds(one, other) and (
      not unit or not other_unit or unit == other_unit
    )
  named = _NAMED.match(gold), _NAMED.match(answer)
  if any(named) and (not all(named) or _name(gold) == _name(answer)):
    return _same(_unnamed(gold), _unnamed(answer), tolerance)
  if _word(gold) and _word(gold) == _word(answer):
    return True
  inner = _inside(gold), _inside(answer)
  if any(inner) and not all(inner):
    return _same(inner[0] or gold, inner[1] or answer, tolerance)
  return _same_parts(gold, answer, tolerance)


def _bare(text: str) -> str:
  return text.replace(" ", "").replace("\x00", "")


def _name(text: str) -> str:
  return text.partition("=")[0].strip()


def _unnamed(text: str) -> str:
  return _NAMED.sub("", text, count=1)


def _word(text: str) -> str:
  """A choice's letter, or words in small letters; else nothing."""
  bare = text.replace("\x00", "").strip()
  choice = _CHOICE.fullmatch(bare)
  if choice:
    return choice[1]
  letters = bare.replace(" ", "").replace("-", "")
  return bare.casefold() if letters.isalpha() and len(letters) > 1 else ""


def _inside(text: str) -> str:
  """What a pair of round brackets encloses, if it is one part."""
  opening, parts, closing = _split(text.replace("\x00", "").strip())
  return parts[0] if opening + closing == "()" and len(parts) == 1 else ""


def _measure(text: str) -> tuple[Fraction | None, str]:
  """A number and its unit, each possibly missing."""
  found = _WITH_UNIT.fullmatch(text)
  if found is None or _NO_UNIT.search(text):
    return _number(_bare(text)), ""
  unit = found[found.lastindex or 1].replace("\x00", " ").casefold()
  unit = " ".join(word.removesuffix("s") for word in unit.split())
  return _number(_bare(found[1])), unit


def _number(text: str) -> Fraction | None:
  if len(text) > _DIGITS:
    return None
  ratio = _RATIO.fullmatch(text)
  try:
    if ratio:
      sign, whole, top, bottom, over, under = ratio.groups()
      if over is not None:
        return Fraction(over) / Fraction(under)
      value = Fraction(top) / Fraction(bottom)
      if whole and value < 0:
        return None
      value += int(whole or 0)
      return -value if sign == "-" else value
    decimal = _DECIMAL.fullmatch(text)
    if decimal is None:
      return None
    sign, digits, power, short_power = decimal.groups()
    exponent = int(power or short_power or 0)
    if abs(exponent) > _EXPONENT:
      return None
    digits = re.sub(r"[{},]", "", digits)
    value = Fraction(digits.rstrip(".") or "0") * Fraction(10) ** exponent
    return -value if sign == "-" else value
  except (ValueError, ZeroDivisionError):
    return None


def _same_parts(gold: str, answer: str, tolerance: Tolerance) -> bool:
  """Compares lists, sets, tuples and intervals part by part."""
  opening, parts, closing = _split(gold)
  other_opening, other_parts, other_closing = _split(answer)
  brackets = opening + closing
  if len(parts) != len(other_parts) or len(parts) < 2 and not brackets:
    return False
  if brackets != other_opening + other_closing:
    return False
  if brackets in ("", "{}"):
    return _same_in_any_order(parts, other_parts, tolerance)
  return all(
    _same(one, other, tolerance)
    for one, other in zip(parts, other_parts, strict=True)
  )


def _same_in_any_order(
  parts: list[str], others: list[str], tolerance: Tolerance
) -> bool:
  left = list(others)
  for part in parts:
    match = next((o for o in left if _same(part, o, tolerance)), None)
    if match is None:
      return False
    left.remove(match)
  return True


def _split(text: str) -> tuple[str, list[str], str]:
  r"""The outer brackets of a text, and its parts between outer commas."""
  # `\{` and `\}` are a set's; other braces only group.
  text = text.replace("\\{", "\x01").replace("\\}", "\x02")
  depth, start, parts = 0, 0, []
  for place, letter in enumerate(text):
    if letter in _OPENING + "\x01":
      depth += 1
    elif letter in _CLOSING + "\x02":
      depth -= 1
    elif letter == "," and depth == 0:
      parts.append(text[start:place])
      start = place + 1
  parts.append(text[start:])
  if len(parts) == 1 and text[:1] in "([\x01" and text[-1:] in ")]\x02":
    if _closes_last(text):
      opening = "{" if text[0] == "\x01" else text[0]
      closing = "}" if text[-1] == "\x02" else text[-1]
      inner = text[1:-1].replace("\x01", "\\{").replace("\x02", "\\}")
      return opening, _split(inner)[1] if _flat(inner) else [inner], closing
  back = [p.replace("\x01", "\\{").replace("\x02", "\\}") for p in parts]
  return "", [part.strip() for part in back], ""


def _flat(text: str) -> bool:
  """Whether a text's outermost commas divide it, and no bracket encloses it."""
  return not _split(text)[0]


def _closes_last(text: str) -> bool:
  """Whether the first bracket of a text is closed by its last letter."""
  depth = 0
  for place, letter in enumerate(text):
    if letter in _OPENING + "\x01":
      depth += 1
    elif letter in _CLOSING + "\x02":
      depth -= 1
      if depth == 0:
        return place == len(text) - 1
  return False
