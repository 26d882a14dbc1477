r"""Compares an answer with a reference by the rules for the reference's kind.

| reference | compared as | module |
| --- | --- | --- |
| `(C)`, `C` | multiple-choice letter | `words.py` |
| `\text{east}`, `ABC` | word or label | `words.py` |
| `\emptyset` | no solution | `words.py` |
| `52_8` | digits and base | `bases.py` |
| `x=3, y=4` | assignments | `names.py` |
| `1,2`, `\{1,2\}`, `1\pm\sqrt2` | list or set | `lists.py` |
| `[0,1)`, `x>2` | set of real numbers | `intervals.py` |
| `y=2x+3`, `x=5` | equation or assignment | `names.py` |
| `(3,4)`, a matrix | ordered parts | `tuples.py` |
| `1:2`, `11:40` | ratio or time | `ratios.py` |
| `12`, `50\%`, `5\text{ cm}` | number and unit | `numbers.py`, `units.py` |
| anything else | formula | `algebra.py` |

Parts are compared by the same rules, recursively. Questions that need algebra
go to a callback, so the caller can collect them and answer them elsewhere.
"""

import dataclasses
from collections.abc import Callable, Sequence

from azr_jax.grading.mathematics import (
  algebra,
  bases,
  intervals,
  lists,
  names,
  numbers,
  parts,
  ratios,
  tuples,
  units,
  words,
)
from azr_jax.grading.mathematics.nodes import Nodes, has, sign, spelled

_FLIPPED = {">": "<", ">=": "<="}
# Round brackets around this many parts cannot be an interval.
_MIN_LISTED = 3


@dataclasses.dataclass(frozen=True)
class Comparer:
  """Compares the nodes of an answer with those of a reference.

  Attributes:
    tolerance: the allowed distance of a number from the reference.
    decide: answers a question that needs algebra.
  """

  tolerance: numbers.Tolerance
  decide: Callable[[algebra.EqualityQuestion], bool]

  def same(self, reference: Nodes, answer: Nodes) -> bool:
    """Returns whether an answer matches the reference."""
    reference, answer = parts.trimmed(reference), parts.trimmed(answer)
    answer = words.without_preamble(answer)
    reference, answer = (
      intervals.REALS if words.is_all_reals(nodes) else nodes
      for nodes in (reference, answer)
    )
    if not reference or not answer:
      return False
    if spelled(reference) == spelled(answer):
      return True
    letter = words.choice(reference)
    if letter is not None:
      return self._choice(letter, answer)
    if words.is_no_solution(reference):
      return words.is_no_solution(answer)
    phrase = words.read(reference)
    if phrase is not None:
      given = words.read(answer, 1 if phrase.mark else 2)
      return given is not None and phrase.same(given)
    if self._value(reference, answer):
      return True
    chosen = words.choice(answer)
    return (
      chosen is not None
      and chosen.letter in words.CHOICES
      and bool(chosen.value)
      and self._value(reference, parts.trimmed(chosen.value))
    )

  def _all(self, reference: Sequence[Nodes], answer: Sequence[Nodes]) -> bool:
    if len(reference) != len(answer):
      return False
    pairs = zip(reference, answer, strict=True)
    # Not a generator: every pair must be compared, so that `decide` sees the
    # questions of all pairs.
    return all([self.same(*pair) for pair in pairs])

  def _each(self, reference: Nodes, answers: Sequence[Nodes]) -> bool:
    return self._all([reference] * len(answers), answers)

  def _choice(self, wanted: words.Choice, answer: Nodes) -> bool:
    given = words.choice(answer)
    if given is None:
      label = words.read(answer)
      if label is not None and label.mark and not wanted.value:
        return label.letters == wanted.letter
      return bool(wanted.value) and self.same(wanted.value, answer)
    if given.letter != wanted.letter:
      return False
    if given.value and wanted.value:
      return self.same(wanted.value, given.value)
    return not given.value or given.letter in words.CHOICES

  def _value(self, reference: Nodes, answer: Nodes) -> bool:
    """Compares with a reference that is not a choice, word or label."""
    based = bases.read(reference)
    if based is not None:
      return based == bases.read(answer)
    assigned = names.assignment(reference)
    if assigned is not None:
      return self._assigned(assigned, answer)
    if numbers.read(reference) is not None and self._single(reference, answer):
      return True  # `1,100` is tried as a number here and as a list below.
    if intervals.has_relation(reference):
      return self._region(reference, answer)
    listed = lists.read(reference)
    if len(listed) > 1 or lists.is_set(reference):
      return self._list(listed, answer)
    return self._single(reference, answer)

  def _assigned(self, wanted: names.Assignment, answer: Nodes) -> bool:
    given = names.assignment(answer)
    if given is None:
      values = tuples.coordinates(answer) or lists.read(answer)
      return self._all(wanted.ordered(), values)
    values_of = dict(zip(given.names, given.values, strict=True))
    if set(values_of) != set(wanted.names):
      return False
    return self._all(wanted.values, [values_of[n] for n in wanted.names])

  def _list(self, reference: list[Nodes], answer: Nodes) -> bool:
    assigned = names.assignment(answer)
    if assigned is not None and not any(map(names.named, reference)):
      return self._all(reference, assigned.ordered())
    values = lists.read(answer)
    if len(values) == 1 and len(reference) >= _MIN_LISTED:
      return self._all(reference, tuples.coordinates(answer) or values)
    if lists.is_order(reference):
      return self._all(reference, values)
    return lists.match(reference, values, self.same, spelled)

  def _region(self, reference: Nodes, answer: Nodes) -> bool:
    wanted, given = intervals.read(reference), intervals.read(answer)
    if wanted is None:
      (left, signs), (right, others) = map(_ascending, (reference, answer))
      return bool(signs) and signs == others and self._all(left, right)
    return given is not None and (
      wanted.may_be_named(given)
      and lists.match(wanted.pieces, given.pieces, self._piece)
    )

  def _piece(self, wanted: intervals.Piece, given: intervals.Piece) -> bool:
    return wanted.is_like(given) and self._all(wanted.ends(), given.ends())

  def _single(self, reference: Nodes, answer: Nodes) -> bool:
    """Compares with a reference that is not a list."""
    if lists.is_set(answer) and len(lists.read(answer)) == 1:
      answer = lists.read(answer)[0]
    if len(parts.sides(reference)[0]) > 1:
      return self._relation(reference, answer)
    if tuples.read(reference) is not None:
      return self._tuple(reference, answer)
    if tuples.is_matrix(reference):
      return self._matrix(reference, answer)
    named = names.named(answer)
    if named is not None:
      return self._each(reference, named.values)
    ratio = ratios.read(reference)
    if ratio is not None:
      return self._ratio(ratio, answer)
    based = bases.read(answer)
    if based is not None:
      decimal = based.decimal()
      return decimal is not None and self.same(reference, decimal)
    reference, answer = _unwrapped(reference), _unwrapped(answer)
    given = ratios.read(answer)
    if given is not None and given.is_fraction():
      answer = given.fraction()
    return self._same_quantity(
      units.read_quantity(reference), units.read_quantity(answer)
    )

  def _relation(self, reference: Nodes, answer: Nodes) -> bool:
    """Compares with a reference that is an equation or assigns a value."""
    wanted, given = names.named(reference), names.named(answer)
    if wanted is None:
      return False
    is_value = bool(wanted.name) or not has(reference, "letter")
    if given is None:
      return is_value and self.same(wanted.values[-1], answer)
    if wanted.name and given.name:
      given = names.renamed(wanted.name, given)
      if names.same(wanted.name, given.name):
        return self._each(wanted.values[-1], given.values)
    if is_value and not wanted.name:
      return self._each(wanted.values[-1], given.values)
    return self._equation(reference, answer)

  def _equation(self, reference: Nodes, answer: Nodes) -> bool:
    differences = []
    for nodes in (reference, answer):
      sides, signs = parts.sides(nodes)
      if signs != ["="]:
        return False
      left, right = sides
      differences.append((*left, sign("-"), sign("("), *right, sign(")")))
    return self._asked("equation", *differences)

  def _tuple(self, reference: Nodes, answer: Nodes) -> bool:
    wanted, given = tuples.read(reference), tuples.read(answer)
    assert wanted is not None
    if intervals.has_relation(answer):
      return self._region(reference, answer)
    if given is not None:
      same_brackets = wanted.brackets == given.brackets
      return same_brackets and self._all(wanted.values, given.values)
    if wanted.brackets != tuples.ROUND:
      return False
    assigned = names.assignment(answer)
    if assigned is not None:
      return self._all(wanted.values, assigned.ordered())
    if len(wanted.values) < _MIN_LISTED and not tuples.is_matrix(answer):
      return False
    values = tuples.coordinates(answer) or lists.read(answer)
    return self._all(wanted.values, values)

  def _matrix(self, reference: Nodes, answer: Nodes) -> bool:
    if not tuples.is_matrix(answer):
      wanted = tuples.coordinates(reference)
      given = tuples.coordinates(answer)
      return bool(wanted and given) and self._all(wanted or (), given or ())
    rows, others = tuples.cells(reference[0]), tuples.cells(answer[0])
    same_shape = [len(row) for row in rows] == [len(row) for row in others]
    return same_shape and self._all(sum(rows, ()), sum(others, ()))

  def _ratio(self, wanted: ratios.Ratio, answer: Nodes) -> bool:
    given = ratios.read(answer)
    if given is None:
      return wanted.is_fraction() and self.same(wanted.fraction(), answer)
    if wanted.half_of_day and given.half_of_day not in ("", wanted.half_of_day):
      return False
    return self._all(wanted.terms, given.terms) or wanted.is_multiple(given)

  def _same_quantity(
    self, wanted: units.Quantity, given: units.Quantity
  ) -> bool:
    verdict = units.same_number(wanted, given, self.tolerance)
    if verdict is not None:
      return verdict
    reference, answer = wanted.nodes, given.nodes
    if wanted.unit == units.DEGREE and _may_be_radians(given):
      return self._formula(algebra.degrees_in_radians(reference), answer)
    if given.unit == units.DEGREE and _may_be_radians(wanted):
      return self._formula(reference, algebra.degrees_in_radians(answer))
    if wanted.is_percent != given.is_percent or wanted.scale != given.scale:
      return False
    if wanted.unit and given.unit and wanted.unit != given.unit:
      return False
    return self._formula(reference, answer)

  def _formula(self, reference: Nodes, answer: Nodes) -> bool:
    if spelled(reference) == spelled(answer):
      return True
    return self._asked("equal", reference, answer)

  def _asked(self, kind: str, reference: Nodes, answer: Nodes) -> bool:
    question = algebra.question(kind, reference, answer)
    return question is not None and self.decide(question)


def _unwrapped(nodes: Nodes) -> Nodes:
  """Removes round brackets or set braces around a single value."""
  whole = parts.enclosed(nodes)
  if whole is None or len(lists.read(nodes)) != 1:
    return nodes
  is_plain = (whole.opening, whole.closing) in (tuples.ROUND, ("{", "}"))
  return parts.trimmed(whole.inner) if is_plain else nodes


def _ascending(nodes: Nodes) -> tuple[list[Nodes], list[str]]:
  """Returns the sides and signs of relations, with the smaller side first."""
  sides, signs = parts.sides(nodes)
  if any(relation in _FLIPPED for relation in signs):
    sides, signs = sides[::-1], [_FLIPPED.get(s, s) for s in signs[::-1]]
  return sides, signs


def _may_be_radians(quantity: units.Quantity) -> bool:
  has_pi = has(quantity.nodes, "command", "pi")
  return quantity.unit in (None, units.RADIAN) and has_pi
