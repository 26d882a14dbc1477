r"""Equality of answers by rules alone: fast, and nothing can hang.

| equal | |
| --- | --- |
| layout | `\dfrac12` and `\frac{1}{2}`, `$5$` and `5`, `\left(1,2\right)` |
| numbers, exactly | `0.5`, `1/2`; `1,000`; `2\frac{1}{3}`; `3\times10^{8}` |
| known units, one side without | `5\text{ cm}` and `5`, not `5\text{ m}` |
| bases of numbers | `25_6` and `25_{6}` alone |
| percent, degrees, dollars | `50\%`, `50^\circ`, `\$50` and `50` |
| one variable named | `x=5` and `5` |
| choices and words | `(C)`, `\text{C}` and `C`; `East` and `\text{east}` |
| brackets around one part | `(113)` and `113` |
| lists and sets | in any order: `1,2` and `2,1`, `\{1,2\}` and `\{2,1\}` |
| lists of named values | in order if one side has no names: `a=1,b=2`, `1,2` |
| tuples and intervals | in order, with the same brackets |

Unlike the checker that ORZ published, commas count: `2,3` is not 23, `(1,2)` is
not 12, and nothing equals an empty answer. A comma with a space behind it never
stands inside a number.
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
# A number, and words behind it, perhaps as LaTeX text.
_WITH_UNIT = re.compile(
  rf"([-+]?(?:{_NUMBER})(?:\s*{_POWER})?|[-+]?\d*\\frac\{{\d+\}}\{{\d+\}}|"
  r"[-+]?\d+/\d+)(?:\s+|(?=\x00))([\x00A-Za-z][\x00A-Za-z\s./*^0-9\-]*)"
)
_MIXED = re.compile(r"([-+]?)(\d+) (\d+)/(\d+)")
_BASED = re.compile(r"([0-9A-Z]+)_\{?(\d+)\}?")
# Units without prefixes of size; the plural's s is taken off before.
_UNITS = frozenset(
  "mm cm dm m km inch inche in foot feet ft yard yd mile mi s sec second min "
  "minute h hr hour day week month year g kg mg gram kilogram lb pound ounce "
  "oz ton tonne l ml liter litre gallon n j kj w kw v hz pa mol ev rad radian "
  "degree dollar cent euro percent unit meter metre kilometer centimeter "
  "millimeter square sq cubic per mph kph people student point way pct".split()
)
_LISTED = re.compile(r",\s")
# Spaces between groups of three digits.
_GROUPED = re.compile(r"(?<=\d) (?=\d{3}(?:\D|$))")
_DEEPEST = 20  # Brackets inside of one another.
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


class _TooDeep(ValueError):
  """More brackets than any answer has."""


def equal(gold: str, answer: str, tolerance: Tolerance = EXACT) -> bool:
  """Whether two answers are the same by the rules above.

  Args:
    gold: the reference.
    answer: the text that was found in a response.
    tolerance: of numbers.
  """
  if max(len(gold), len(answer)) > LONGEST:
    return gold.strip() == answer.strip()
  try:
    return _same(_clean(gold), _clean(answer), tolerance)
  except _TooDeep:
    return gold.strip() == answer.strip()


def comparable(gold: str, answer: str) -> bool:
  """Whether algebra may say what rules did not: that two answers are equal.

  It forgets the base of a number and words behind one, takes the last side of
  any equation, does not count what a list repeats, has sets equal tuples and
  `x` equal `X`; so what differs in these is different.
  """
  one, other = _clean(gold), _clean(answer)
  if "\\boxed" in other or any(
    _BASED.fullmatch(_bare(t)) for t in (one, other)
  ):
    return False
  if "=" in other and "=" not in one and not _NAMED.match(other):
    return False
  try:
    left, parts, right = _split(one)
    open_, other_parts, close = _split(other)
  except _TooDeep:
    return False
  # It takes `x` and `X` for one letter.
  if _bare(one).casefold() == _bare(other).casefold():
    return False
  if _are_numbers(parts) and _are_numbers(other_parts):
    return False
  for text, another in ((one, other), (other, one)):
    if _measure(text)[0] is not None and _has_words(another):
      return False
  return not (left and open_) or (left, right) == (open_, close)


def _are_numbers(parts: list[str]) -> bool:
  return all(_measure(_unnamed(part))[0] is not None for part in parts)


def _has_words(text: str) -> bool:
  """Whether words stand behind a number that are no unit."""
  return _measure(text)[0] is None and (
    "\x00" in text or _WITH_UNIT.fullmatch(text) is not None
  )


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
  based, other_based = map(_BASED.fullmatch, map(_bare, (gold, answer)))
  if based or other_based:
    return bool(
      based and other_based and based.groups() == other_based.groups()
    )
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
  """Text without the spaces that divide nothing; `1 2` is not 12."""
  text = _GROUPED.sub("", text.replace("\x00", ""))
  return re.sub(r"(?<![0-9A-Za-z]) +| +(?![0-9A-Za-z])", "", text)


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
  # Two letters may be points: AB is not ab.
  is_word = len(letters) > 2 or "\x00" in text or letters.casefold() == "no"
  return bare.casefold() if letters.isalpha() and is_word else ""


def _inside(text: str) -> str:
  """What a pair of round brackets encloses, if it is one part."""
  opening, parts, closing = _split(text.replace("\x00", "").strip())
  return parts[0] if opening + closing == "()" and len(parts) == 1 else ""


def _measure(text: str) -> tuple[Fraction | None, str]:
  """A number and its unit, each possibly missing."""
  if _LISTED.search(text):
    return None, ""
  found = _WITH_UNIT.fullmatch(text)
  value = _number(_bare(text))  # Of `3e8`, whose letter is no unit.
  if found is None or value is not None or _BASED.fullmatch(_bare(text)):
    return value, ""
  words = found[found.lastindex or 1].replace("\x00", " ").casefold()
  unit = [_singular(word) for word in re.findall(r"[a-z]+|[^a-z\s]+", words)]
  letters = [word for word in unit if word.isalpha()]
  # A letter alone is a unit only where LaTeX says that it is text.
  shortest = 1 if "\x00" in text else 2
  if any(w not in _UNITS or len(w) < shortest for w in letters):
    return None, ""
  return _number(_bare(found[1])), " ".join(unit)


def _singular(word: str) -> str:
  return word if word in _UNITS else word.removesuffix("s")


def _number(text: str) -> Fraction | None:
  if len(text) > _DIGITS:
    return None
  mixed = _MIXED.fullmatch(text)
  if mixed and int(mixed[4]):
    value = int(mixed[2]) + Fraction(int(mixed[3]), int(mixed[4]))
    return -value if mixed[1] else value
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
  if brackets in ("", "{}") and (
    _have_names(parts) == _have_names(other_parts)
  ):
    return _same_in_any_order(parts, other_parts, tolerance)
  return all(
    _same(one, other, tolerance)
    for one, other in zip(parts, other_parts, strict=True)
  )


def _have_names(parts: list[str]) -> bool:
  """Whether the parts are values of different names."""
  names = {_name(part) for part in parts if _NAMED.match(part)}
  return len(names) == len(parts) > 1


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
  parts, enclosed = _scan(text)
  opening = closing = ""
  if enclosed:
    opening = "{" if text[0] == "\x01" else text[0]
    closing = "}" if text[-1] == "\x02" else text[-1]
    inner = text[1:-1]
    parts, again = _scan(inner)
    parts = [inner] if again else parts
  back = [p.replace("\x01", "\\{").replace("\x02", "\\}") for p in parts]
  return opening, [part.strip() for part in back], closing


def _scan(text: str) -> tuple[list[str], bool]:
  """Parts between outer commas, and whether one pair of brackets holds all.

  Raises:
    _TooDeep: brackets inside of one another beyond `_DEEPEST`.
  """
  depth, start, parts, closed_at = 0, 0, [], None
  for place, letter in enumerate(text):
    if letter in _OPENING + "\x01":
      depth += 1
      if depth > _DEEPEST:
        raise _TooDeep
    elif letter in _CLOSING + "\x02":
      depth -= 1
      if depth == 0 and closed_at is None:
        closed_at = place
    elif letter == "," and depth == 0:
      parts.append(text[start:place])
      start = place + 1
  parts.append(text[start:])
  enclosed = closed_at == len(text) - 1 and text[0] in "([\x01"
  return parts, enclosed and text[-1] in ")]\x02"
