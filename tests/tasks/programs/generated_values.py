"""Generates argument texts: literals, and expressions with such values.

A seed gives the same texts on every machine. The texts are valid Python; they
do not depend on what the graders accept.
"""

import random

_TEXTS = (
  "''",
  "'a'",
  '"it\'s"',
  "'#no comment'",
  "'two\\nlines'",
  "'\\\\'",
  "'é\\u4e2d'",
  "'\\ud800'",
  "'''a'b\"c'''",
  "'```input'",
  "r'\\d+'",
)
_FLOATS = (
  "0.0",
  "-0.0",
  "1.5",
  "-2.25e-300",
  "1e999",
  "float('inf')",
  "float('-inf')",
  "float('nan')",
  "0.1 + 0.2",
  "math.pi",
)
_INTS = ("0", "-1", "7", "10**20", "-(2**70)", "0xff", "1_000", "True + 1")
_OTHERS = (
  "None",
  "True",
  "False",
  "1+2j",
  "-3j",
  "complex(float('nan'), -0.0)",
  "b''",
  "b'\\x00a'",
  "Fraction(1, 3)",
  "Decimal('1.50')",
  "fractions.Fraction('0.5')",
)


class Texts:
  """Draws random texts of values."""

  def __init__(self, seed: int):
    self._random = random.Random(seed)

  def arguments(self) -> str:
    """Returns the arguments of one call, perhaps none."""
    parts = [self.value(2) for _ in range(self._random.choice((0, 1, 1, 2)))]
    if self._chance(0.2):
      parts.append(f"*{self._listing(1, self.value)}")
    names = self._random.sample("abcxyz", self._random.choice((0, 0, 1, 2)))
    parts += [f"{name}={self.value(1)}" for name in names]
    if self._chance(0.1):
      parts.append(f"**dict(k={self.value(1)})")
    return ", ".join(parts)

  def value(self, depth: int) -> str:
    """Returns a text of up to `depth` levels, literal or not."""
    if depth and self._chance(0.45):
      return self._expression(depth - 1)
    if depth and self._chance(0.7):
      return self._container(depth - 1)
    return self._scalar()

  def _chance(self, probability: float) -> bool:
    return self._random.random() < probability

  def _scalar(self) -> str:
    kind = self._random.choice((_TEXTS, _FLOATS, _INTS, _OTHERS))
    return self._random.choice(kind)

  def _int(self) -> str:
    return str(self._random.randrange(5))

  def _hashable(self, depth: int) -> str:
    if depth and self._chance(0.3):
      inside = self._listing(depth - 1, self._hashable)
      return self._random.choice((f"tuple({inside})", f"frozenset({inside})"))
    return self._scalar()

  def _parts(self, depth: int, draw) -> list[str]:
    return [draw(depth) for _ in range(self._random.randrange(4))]

  def _listing(self, depth: int, draw) -> str:
    return f"[{', '.join(self._parts(depth, draw))}]"

  def _container(self, depth: int) -> str:
    keys = self._parts(depth, self._hashable)
    items = [f"{key}: {self.value(depth)}" for key in keys]
    pairs = [f"({key}, {self.value(depth)})" for key in keys]
    counts = [f"{key}: {self._int()}" for key in keys]
    return self._random.choice(
      (
        self._listing(depth, self.value),
        f"({''.join(part + ', ' for part in self._parts(depth, self.value))})",
        f"{{{', '.join(keys)}}}",
        f"set([{', '.join(keys)}])",
        f"frozenset({{{', '.join(keys)}}})" if keys else "frozenset()",
        f"{{{', '.join(items)}}}",
        f"Counter({{{', '.join(counts)}}})",
        f"OrderedDict([{', '.join(pairs)}])",
        f"deque({self._listing(depth, self.value)})",
      )
    )

  def _expression(self, depth: int) -> str:
    value, number, text = self.value(depth), self._int(), "'abc'"
    listing = self._listing(depth, self.value)
    return self._random.choice(
      (
        f"[{value}] * {number}",
        f"{listing} + [{value}]",
        f"list(range({number}))",
        f"[x * 2 for x in range({number}) if x % 2]",
        f"{{x: {value} for x in 'ab'}}",
        f"dict(a={value}, b={number})",
        f"{number} ** 10",
        f"{text} * {number}",
        f"'{number},2'.split(',')",
        f"f'{{{number}:03d}}'",
        f"(lambda v, n={number}: [v, n])({value})",
        f"sorted({{3, 1, {number}}}, reverse=True)",
        f"{value} if {number} > 2 else {number}",
        f"[{value}][-1:]",
        f"[*{listing}, *range({number})]",
        f"{{**{{'a': {value}}}}}",
        f"sum(range({number})) / 2",
        f"not {number}",
        f"dict(zip({text}, [{value}]))",
        f"functools.reduce(lambda a, b: a * b, range(1, {number} + 2))",
        f"[*itertools.permutations(range({number} % 4))]",
        f"collections.deque([{value}], 3)",
        f"string.digits[{number}:]",
        f"bytes([{number}])",
        # Values without a literal, or without a deterministic one.
        f"range({number})",
        "lambda x: x",
        "list(set('abcdefgh'))",
        "missing",
      )
    )
