r"""Compares answers by rules alone, which are fast and always end.

| equal | examples |
| --- | --- |
| layout | `\dfrac12` and `\frac{1}{2}`, `$5$` and `5`, `\left(1,2\right)` |
| numbers, exactly | `0.5`, `1/2`; `1,000`; `2\frac{1}{3}`; `3\times10^{8}` |
| a known unit, on one side | `5\text{ cm}` and `5`, not `5\text{ m}` |
| bases of numbers | `25_6` and `25_{6}` only |
| percent, degrees, dollars | `50\%`, `50^\circ`, `\$50` and `50` |
| one variable named | `x=5` and `5` |
| choices and words | `(C)`, `\text{C}` and `C`; `East` and `\text{east}` |
| brackets around one part | `(113)` and `113` |
| lists and sets | in any order: `1,2` and `2,1`, `\{1,2\}` and `\{2,1\}` |
| lists of named values | in order if one side has no names: `a=1,b=2`, `1,2` |
| tuples and intervals | in order, with the same brackets |

Unlike in the checker that ORZ published, commas matter: `2,3` is not 23 and
`(1,2)` is not 12. Nothing equals an empty answer. A comma before a space is
never part of a number.
"""

import dataclasses
import re
from fractions import Fraction

MAX_ANSWER_CHARS = 1000
_MAX_NUMBER_CHARS = 300
_MAX_EXPONENT = 300
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
# A number, and words after it, perhaps as LaTeX text.
_WITH_UNIT = re.compile(
  rf"([-+]?(?:{_NUMBER})(?:\s*{_POWER})?|[-+]?\d*\\frac\{{\d+\}}\{{\d+\}}|"
  r"[-+]?\d+/\d+)(?:\s+|(?=\x00))([\x00A-Za-z][\x00A-Za-z\s./*^0-9\-]*)"
)
_MIXED = re.compile(r"([-+]?)(\d+) (\d+)/(\d+)")
_BASED = re.compile(r"([0-9A-Z]+)_\{?(\d+)\}?")
# Units in the singular.
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
_MAX_DEPTH = 20  # Nested brackets.
_OPENING, _CLOSING = "([{", ")]}"


@dataclasses.dataclass(frozen=True)
class Tolerance:
  """How far a number may be from the reference: the larger of both fields.

  Attributes:
    absolute: in the answer's unit.
    relative: as a fraction of the reference.
  """

  absolute: float = 0.0
  relative: float = 0.0

  def holds(self, reference: Fraction, answer: Fraction) -> bool:
    """Returns whether an answer is close enough to the reference."""
    relative = Fraction(self.relative) * abs(reference)
    return abs(reference - answer) <= max(Fraction(self.absolute), relative)


EXACT = Tolerance()


class _TooDeep(ValueError):
  """A text has more nested brackets than any answer."""


def equal(reference: str, answer: str, tolerance: Tolerance = EXACT) -> bool:
  """Returns whether two answers are the same by the rules above.

  Args:
    reference: the reference answer.
    answer: the text in a response.
    tolerance: how far a number may be from the reference.
  """
  if max(len(reference), len(answer)) > MAX_ANSWER_CHARS:
    return reference.strip() == answer.strip()
  try:
    return _same(_clean(reference), _clean(answer), tolerance)
  except _TooDeep:
    return reference.strip() == answer.strip()


def comparable(reference: str, answer: str) -> bool:
  """Returns whether algebra may call two answers equal that rules did not.

  math-verify ignores a number's base, words after a number, and repeated parts
  of a list. It keeps only the last side of an equation, and equates sets with
  tuples and `x` with `X`. Answers that differ in these are not comparable.
  """
  wanted, given = _clean(reference), _clean(answer)
  if "\\boxed" in given or any(
    _BASED.fullmatch(_bare(text)) for text in (wanted, given)
  ):
    return False
  if "=" in given and "=" not in wanted and not _NAMED.match(given):
    return False
  try:
    opening, wanted_parts, closing = _split(wanted)
    given_opening, given_parts, given_closing = _split(given)
  except _TooDeep:
    return False
  if _bare(wanted).casefold() == _bare(given).casefold():
    return False  # math-verify equates `x` with `X`.
  if _are_numbers(wanted_parts) and _are_numbers(given_parts):
    return False
  for text, other in ((wanted, given), (given, wanted)):
    if _measure(text)[0] is not None and _has_words(other):
      return False
  return not (opening and given_opening) or (
    (opening, closing) == (given_opening, given_closing)
  )


def _are_numbers(parts: list[str]) -> bool:
  return all(_measure(_unnamed(part))[0] is not None for part in parts)


def _has_words(text: str) -> bool:
  """Returns whether words follow a number that are not a unit."""
  return _measure(text)[0] is None and (
    "\x00" in text or _WITH_UNIT.fullmatch(text) is not None
  )


def number(text: str) -> Fraction | None:
  """Returns the exact value of a number's text without its unit, or None."""
  return _measure(_clean(text))[0]


def _clean(text: str) -> str:
  """Normalizes notation; LaTeX text is put between NUL characters."""
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


def _same(reference: str, answer: str, tolerance: Tolerance) -> bool:
  """Returns whether two clean texts are equal."""
  if not _bare(reference) or not _bare(answer):
    return False
  if _bare(reference) == _bare(answer):
    return True
  based, answer_based = map(_BASED.fullmatch, map(_bare, (reference, answer)))
  if based or answer_based:
    return bool(
      based and answer_based and based.groups() == answer_based.groups()
    )
  wanted, unit = _measure(reference)
  given, answer_unit = _measure(answer)
  if wanted is not None and given is not None:
    return tolerance.holds(wanted, given) and (
      not unit or not answer_unit or unit == answer_unit
    )
  named = _NAMED.match(reference), _NAMED.match(answer)
  if any(named) and (not all(named) or _name(reference) == _name(answer)):
    return _same(_unnamed(reference), _unnamed(answer), tolerance)
  if _word(reference) and _word(reference) == _word(answer):
    return True
  inner = _inside(reference), _inside(answer)
  if any(inner) and not all(inner):
    return _same(inner[0] or reference, inner[1] or answer, tolerance)
  return _same_parts(reference, answer, tolerance)


def _bare(text: str) -> str:
  """Removes spaces that do not separate numbers or words; `1 2` is not 12."""
  text = _GROUPED.sub("", text.replace("\x00", ""))
  return re.sub(r"(?<![0-9A-Za-z]) +| +(?![0-9A-Za-z])", "", text)


def _name(text: str) -> str:
  return text.partition("=")[0].strip()


def _unnamed(text: str) -> str:
  return _NAMED.sub("", text, count=1)


def _word(text: str) -> str:
  """Returns a choice's letter, or words in lower case, or an empty text."""
  bare = text.replace("\x00", "").strip()
  choice = _CHOICE.fullmatch(bare)
  if choice:
    return choice[1]
  letters = bare.replace(" ", "").replace("-", "")
  # Two letters may be points of geometry, so AB is not ab.
  is_word = len(letters) > 2 or "\x00" in text or letters.casefold() == "no"
  return bare.casefold() if letters.isalpha() and is_word else ""


def _inside(text: str) -> str:
  """Returns the one part inside round brackets, or an empty text."""
  opening, parts, closing = _split(text.replace("\x00", "").strip())
  return parts[0] if opening + closing == "()" and len(parts) == 1 else ""


def _measure(text: str) -> tuple[Fraction | None, str]:
  """Returns a number, or None, and its unit, which may be empty."""
  if _LISTED.search(text):
    return None, ""
  match = _WITH_UNIT.fullmatch(text)
  value = _number(_bare(text))  # The letter of `3e8` is not a unit.
  if match is None or value is not None or _BASED.fullmatch(_bare(text)):
    return value, ""
  words = match[match.lastindex or 1].replace("\x00", " ").casefold()
  unit = [_singular(word) for word in re.findall(r"[a-z]+|[^a-z\s]+", words)]
  letters = [word for word in unit if word.isalpha()]
  # A single letter is a unit only if LaTeX marks it as text.
  min_letters = 1 if "\x00" in text else 2
  if any(w not in _UNITS or len(w) < min_letters for w in letters):
    return None, ""
  return _number(_bare(match[1])), " ".join(unit)


def _singular(word: str) -> str:
  return word if word in _UNITS else word.removesuffix("s")


def _number(text: str) -> Fraction | None:
  if len(text) > _MAX_NUMBER_CHARS:
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
    if abs(exponent) > _MAX_EXPONENT:
      return None
    digits = re.sub(r"[{},]", "", digits)
    value = Fraction(digits.rstrip(".") or "0") * Fraction(10) ** exponent
    return -value if sign == "-" else value
  except (ValueError, ZeroDivisionError):
    return None


def _same_parts(reference: str, answer: str, tolerance: Tolerance) -> bool:
  """Returns whether lists, sets, tuples or intervals are equal by parts."""
  opening, wanted, closing = _split(reference)
  answer_opening, given, answer_closing = _split(answer)
  brackets = opening + closing
  if len(wanted) != len(given) or len(wanted) < 2 and not brackets:
    return False
  if brackets != answer_opening + answer_closing:
    return False
  if brackets in ("", "{}") and _have_names(wanted) == _have_names(given):
    return _same_in_any_order(wanted, given, tolerance)
  return all(
    _same(wanted_part, given_part, tolerance)
    for wanted_part, given_part in zip(wanted, given, strict=True)
  )


def _have_names(parts: list[str]) -> bool:
  """Returns whether the parts are values of different names."""
  names = {_name(part) for part in parts if _NAMED.match(part)}
  return len(names) == len(parts) > 1


def _same_in_any_order(
  wanted: list[str], given: list[str], tolerance: Tolerance
) -> bool:
  unmatched = list(given)
  for part in wanted:
    match = next((o for o in unmatched if _same(part, o, tolerance)), None)
    if match is None:
      return False
    unmatched.remove(match)
  return True


def _split(text: str) -> tuple[str, list[str], str]:
  r"""Returns the outer brackets, and between them the parts between commas.

  The order is opening bracket, parts, closing bracket.
  """
  # `\{` and `\}` enclose a set; other braces only group.
  text = text.replace("\\{", "\x01").replace("\\}", "\x02")
  parts, enclosed = _scan(text)
  opening = closing = ""
  if enclosed:
    opening = "{" if text[0] == "\x01" else text[0]
    closing = "}" if text[-1] == "\x02" else text[-1]
    inner = text[1:-1]
    parts, is_enclosed_twice = _scan(inner)
    parts = [inner] if is_enclosed_twice else parts
  parts = [p.replace("\x01", "\\{").replace("\x02", "\\}") for p in parts]
  return opening, [part.strip() for part in parts], closing


def _scan(text: str) -> tuple[list[str], bool]:
  """Returns the parts between outer commas, and whether brackets hold all.

  Raises:
    _TooDeep: there are more than `_MAX_DEPTH` nested brackets.
  """
  depth, start, parts, closed_at = 0, 0, [], None
  for index, letter in enumerate(text):
    if letter in _OPENING + "\x01":
      depth += 1
      if depth > _MAX_DEPTH:
        raise _TooDeep
    elif letter in _CLOSING + "\x02":
      depth -= 1
      if depth == 0 and closed_at is None:
        closed_at = index
    elif letter == "," and depth == 0:
      parts.append(text[start:index])
      start = index + 1
  parts.append(text[start:])
  enclosed = closed_at == len(text) - 1 and text[0] in "([\x01"
  return parts, enclosed and text[-1] in ")]\x02"
