r"""Reads lists and sets, and matches their parts.

A bare list equals a set with the same parts, in any order. Letters or words out
of alphabetical order count as a ranking (`C, A, B`) and are compared in order.
A `\pm` sign stands for two parts.
"""

import collections
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from azr_jax.grading.mathematics import names, parts, words
from azr_jax.grading.mathematics.nodes import (
  Nodes,
  sign,
  substituted,
  walk,
)

T = TypeVar("T")
# Limit on parts that differ in notation, which are compared pairwise.
MAX_UNLIKE = 24
_PLUS_MINUS, _MINUS_PLUS = sign("+-"), sign("-+")
_SIGNS = (
  {_PLUS_MINUS: sign("+"), _MINUS_PLUS: sign("-")},
  {_PLUS_MINUS: sign("-"), _MINUS_PLUS: sign("+")},
)


def read(nodes: Nodes) -> list[Nodes]:
  """Returns the parts of a list or set. Anything else is a single part."""
  nodes = _value(nodes)
  members = _members(nodes)
  found = parts.split(nodes if members is None else members)
  return [value for part in found for value in _plus_and_minus(part)]


def is_set(nodes: Nodes) -> bool:
  """Returns whether nodes are a set in braces that lists its members."""
  return _members(_value(nodes)) is not None


def _members(nodes: Nodes) -> Nodes | None:
  r"""Returns the content of braces, None for a condition (`x \mid x>1`)."""
  whole = parts.enclosed(nodes)
  if whole is None or (whole.opening, whole.closing) != ("{", "}"):
    return None
  is_condition = len(parts.split(whole.inner, ("|", ":"))) > 1
  return None if is_condition else whole.inner


def is_order(values: Sequence[Nodes]) -> bool:
  """Returns whether parts are a ranking: words or letters, not alphabetical."""
  keys = []
  for value in values:
    word, choice = words.read(value), words.choice(value)
    if word is None and (choice is None or choice.value):
      return False
    letters = word.letters if word else choice.letter if choice else ""
    keys.append(letters.casefold())
  return keys != sorted(keys)


def match(
  reference: Sequence[T],
  answer: Sequence[T],
  same: Callable[[T, T], bool],
  spelling: Callable[[T], Hashable] = lambda part: part,
) -> bool:
  """Returns whether the parts can be matched one to one.

  Args:
    reference: the parts of the reference.
    answer: the parts of the answer.
    same: compares two parts. It is called for every pair of parts left after
      matching by spelling, so it can collect all questions.
    spelling: a key that is equal only for parts that are surely the same. These
      are matched first.
  """
  if len(reference) != len(answer):
    return False
  unmatched: dict[Hashable, list[T]] = collections.defaultdict(list)
  for part in answer:
    unmatched[spelling(part)].append(part)
  left = []
  for part in reference:
    like = unmatched[spelling(part)]
    if like:
      like.pop()
    else:
      left.append(part)
  rest = [part for like in unmatched.values() for part in like]
  if len(left) > MAX_UNLIKE:
    return False
  table = [[same(part, other) for other in rest] for part in left]
  return _can_pair(table)


def _can_pair(table: list[list[bool]]) -> bool:
  """Returns whether each row can be matched to a true column of its own.

  This is Kuhn's algorithm.
  """
  owner: dict[int, int] = {}

  def place(row: int, tried: set[int]) -> bool:
    for column, fits in enumerate(table[row]):
      if fits and column not in tried:
        tried.add(column)
        if column not in owner or place(owner[column], tried):
          owner[column] = row
          return True
    return False

  return all(place(row, set()) for row in range(len(table)))


def _value(nodes: Nodes) -> Nodes:
  r"""Removes a leading `x \in`, or `x =` before a set or a `\pm` value."""
  if len(parts.split(nodes)) > 1:
    return nodes
  for index, node in enumerate(nodes[:6]):
    if node == sign("in") and names.is_name(nodes[:index]):
      return nodes[index + 1 :]
  named = names.named(nodes)
  if named is None or not named.name or len(named.values) != 1:
    return nodes
  value = named.values[0]
  whole = parts.enclosed(value)
  is_many = _PLUS_MINUS in walk(value) or (
    whole is not None and whole.opening == "{"
  )
  return value if is_many else nodes


def _plus_and_minus(nodes: Nodes) -> list[Nodes]:
  every = walk(nodes)
  if every.count(_PLUS_MINUS) != 1 or every.count(_MINUS_PLUS) > 1:
    return [nodes]
  return [substituted(nodes, signs) for signs in _SIGNS]
