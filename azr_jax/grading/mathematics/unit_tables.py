"""Units of measure with their conversions, and words that are not units."""

from fractions import Fraction

Powers = tuple[tuple[str, int], ...]

_LENGTH: Powers = (("meter", 1),)
_VOLUME: Powers = (("meter", 3),)
_SPEED: Powers = (("meter", 1), ("second", -1))
_MASS: Powers = (("gram", 1),)
_TIME: Powers = (("second", 1),)
# (size of the unit in its base unit, base units with powers, names).
_TABLE: tuple[tuple[str, Powers, str], ...] = (
  ("1", _LENGTH, "m meter metre"),
  ("1/1000", _LENGTH, "mm millimeter millimetre"),
  ("1/100", _LENGTH, "cm centimeter centimetre"),
  ("1/10", _LENGTH, "dm decimeter decimetre"),
  ("1000", _LENGTH, "km kilometer kilometre"),
  ("0.0254", _LENGTH, "in inch inche"),
  ("0.3048", _LENGTH, "ft foot feet"),
  ("0.9144", _LENGTH, "yd yard"),
  ("1609.344", _LENGTH, "mi mile"),
  ("1/1000", _VOLUME, "l liter litre"),
  ("1/1000000", _VOLUME, "ml milliliter millilitre"),
  ("0.44704", _SPEED, "mph"),
  ("5/18", _SPEED, "kph kmh"),
  ("1", _MASS, "g gram"),
  ("1/1000", _MASS, "mg milligram"),
  ("1000", _MASS, "kg kilogram"),
  ("1000000", _MASS, "tonne"),
  ("453.59237", _MASS, "lb pound"),
  ("28.349523125", _MASS, "oz ounce"),
  ("1", _TIME, "s sec second"),
  ("1/1000", _TIME, "ms millisecond"),
  ("60", _TIME, "min minute"),
  ("3600", _TIME, "h hr hour"),
  ("86400", _TIME, "day"),
  ("604800", _TIME, "week"),
  ("1", (("dollar", 1),), "dollar"),
  ("1/100", (("dollar", 1),), "cent"),
  ("1", (("degree", 1),), "degree"),
  ("1", (("radian", 1),), "rad radian"),
  ("1", (("newton", 1),), "n newton"),
  ("1", (("joule", 1),), "j joule"),
  ("1000", (("joule", 1),), "kj kilojoule"),
  ("1", (("watt", 1),), "w watt"),
  ("1000", (("watt", 1),), "kw kilowatt"),
  ("1", (("volt", 1),), "v volt"),
  ("1", (("hertz", 1),), "hz hertz"),
  ("1", (("pascal", 1),), "pa pascal"),
  ("1000", (("pascal", 1),), "kpa kilopascal"),
  ("1", (), "unit"),
)
KNOWN: dict[str, tuple[Fraction, Powers]] = {
  name: (Fraction(size), powers)
  for size, powers, names in _TABLE
  for name in names.split()
}
SCALES: dict[str, int] = {
  "hundred": 100,
  "thousand": 1000,
  "million": 10**6,
  "billion": 10**9,
  "trillion": 10**12,
  "dozen": 12,
}
PERCENT = frozenset(("percent", "percentage", "pct"))
# Words before or after a unit that raise it to a power.
POWER_PREFIXES: dict[str, int] = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
POWER_SUFFIXES: dict[str, int] = {"squared": 2, "cubed": 3}
# Words after a number that change its meaning, in the singular.
NO_UNIT = (
  frozenset(
    "more less than time plus minus over half halve third fourth quarter fifth "
    "sixth seventh eighth ninth tenth hundredth thousandth factorial mod "
    "modulo infinity root to not if when where for is are base negative "
    "positive imaginary one two three four five six seven eight nine ten "
    "divided multiplied by with without between either but except".split()
  )
  | SCALES.keys()
  | PERCENT
  | POWER_SUFFIXES.keys()
)
# Three-letter nouns that count as units even outside a text font.
SHORT_NOUNS = frozenset("men day way cup box hen cow egg car cat dog".split())
