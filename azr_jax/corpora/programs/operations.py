"""The catalogue of operations in the programs of the corpus.

An operation has Python code, a phrase in words, a function, and an inverse for
backward reasoning. Values stay small, so that a tiny model can learn the
arithmetic.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

LETTERS = "abcde"
Value = Any


@dataclasses.dataclass(frozen=True)
class ChainOperation:
  """One step from a value to one of type `output_type`.

  Attributes:
    output_type: type name of the result. A type that is not in `MAKERS` ends
      the chain.
    expression: Python expression with `{v}` for the argument, or "".
    block: statements that change `{v}`, used if there is no expression.
    phrase: the operation in words.
    forward: maps the argument to the result.
    inverse: maps a result to a simple argument, or to None if there is none.
    helper: definition of a function that the expression calls, or "".
  """

  output_type: str
  expression: str
  phrase: str
  forward: Callable[[Value], Value]
  inverse: Callable[[Value], Value | None]
  block: tuple[str, ...] = ()
  helper: str = ""


def _int_to_int(rng: np.random.Generator) -> ChainOperation:
  c, d = int(rng.integers(1, 6)), int(rng.integers(2, 4))
  variant = int(rng.integers(8))
  if variant == 0:
    return ChainOperation(
      "int",
      f"{{v}} + {c}",
      f"add {c}",
      lambda v: v + c,
      lambda v: v - c,
    )
  if variant == 1:
    return ChainOperation(
      "int",
      f"{{v}} - {c}",
      f"subtract {c}",
      lambda v: v - c,
      lambda v: v + c,
    )
  if variant == 2:
    return ChainOperation(
      "int",
      f"{{v}} * {d}",
      f"multiply by {d}",
      lambda v: v * d,
      lambda v: v // d if v % d == 0 else None,
    )
  if variant == 3:
    return ChainOperation(
      "int",
      f"{{v}} // {d}",
      f"divide by {d}",
      lambda v: v // d,
      lambda v: v * d,
    )
  if variant == 4:
    return ChainOperation(
      "int",
      f"{{v}} % {d + 1}",
      f"remainder by {d + 1}",
      lambda v: v % (d + 1),
      lambda v: v if 0 <= v <= d else None,
    )
  if variant == 5:
    return _branch(c, d, int(rng.integers(3, 7)))
  if variant == 6:
    return ChainOperation(
      "int",
      "",
      f"add the numbers up to {d}",
      lambda v: v + d * (d + 1) // 2,
      lambda v: v - d * (d + 1) // 2,
      block=(f"for i in range({d + 1}):", "  {v} = {v} + i"),
    )
  return ChainOperation(
    "int",
    "g({v})",
    f"multiply by {d} then add {c}",
    lambda v: v * d + c,
    lambda v: (v - c) // d if (v - c) % d == 0 else None,
    helper=f"def g(v):\n  return v * {d} + {c}",
  )


def _branch(c: int, d: int, limit: int) -> ChainOperation:
  def inverse(v: int) -> int | None:
    if v - c > limit:
      return v - c
    return v + d if v + d <= limit else None

  return ChainOperation(
    "int", "", f"if over {limit} add {c} else subtract {d}",
    lambda v: v + c if v > limit else v - d,
    inverse,
    block=(
      f"if {{v}} > {limit}:", f"  {{v}} = {{v}} + {c}",
      "else:", f"  {{v}} = {{v}} - {d}",
    ),
  )  # fmt: skip  # Lines group related arguments.


def _int_to_list(rng: np.random.Generator) -> ChainOperation:
  c = int(rng.integers(1, 10))
  return ChainOperation(
    "list", f"[{{v}}, {{v}} + {c}]", f"list it and it plus {c}",
    lambda v: [v, v + c],
    lambda v: v[0] if len(v) == 2 and v[1] == v[0] + c else None,
  )  # fmt: skip  # Lines group related arguments.


def _int_to_tuple(rng: np.random.Generator) -> ChainOperation:
  c = int(rng.integers(1, 10))
  return ChainOperation(
    "tuple", f"({{v}}, {{v}} * 2, {c})", f"tuple of it, twice it, {c}",
    lambda v: (v, v * 2, c), lambda v: v[0],
  )  # fmt: skip  # Lines group related arguments.


def _int_to_dict(rng: np.random.Generator) -> ChainOperation:
  name, c = _letters(rng, 1), int(rng.integers(1, 10))
  return ChainOperation(
    "dict", f"{{{{'{name}': {{v}}, 'n': {c}}}}}",
    f"dict of {name} as it, n as {c}",
    lambda v: {name: v, "n": c}, lambda v: v[name],
  )  # fmt: skip  # Lines group related arguments.


def _int_to_str(rng: np.random.Generator) -> ChainOperation:
  del rng
  return ChainOperation(
    "str", "str({v})", "turn into text",
    str, lambda v: int(v) if v.lstrip("-").isdigit() else None,
  )  # fmt: skip  # Lines group related arguments.


def _list_to_list(rng: np.random.Generator) -> ChainOperation:
  c, d = int(rng.integers(1, 4)), int(rng.integers(2, 4))
  limit = int(rng.integers(2, 7))
  return [
    ChainOperation(
      "list", "{v}[::-1]", "reverse",
      lambda v: v[::-1], lambda v: v[::-1],
    ),
    ChainOperation(
      "list", "sorted({v})", "sort",
      sorted, lambda v: v if v == sorted(v) else None,
    ),
    ChainOperation(
      "list", f"{{v}} + [{c}]", f"append {c}",
      lambda v: v + [c], lambda v: v[:-1] if v and v[-1] == c else None,
    ),
    ChainOperation(
      "list", "{v}[1:]", "drop the first",
      lambda v: v[1:], lambda v: [0, *v],
    ),
    ChainOperation(
      "list", f"[i + {c} for i in {{v}}]", f"add {c} to each",
      lambda v: [i + c for i in v], lambda v: [i - c for i in v],
    ),
    ChainOperation(
      "list", f"[i * {d} for i in {{v}}]", f"multiply each by {d}",
      lambda v: [i * d for i in v],
      lambda v: [i // d for i in v] if all(i % d == 0 for i in v) else None,
    ),
    ChainOperation(
      "list", f"[i for i in {{v}} if i > {limit}]",
      f"keep those over {limit}",
      lambda v: [i for i in v if i > limit],
      lambda v: v if all(i > limit for i in v) else None,
    ),
  ][rng.integers(7)]  # fmt: skip  # Lines group related arguments.


def _list_to_int(rng: np.random.Generator) -> ChainOperation:
  c = int(rng.integers(2, 4))
  return [
    ChainOperation("int", "sum({v})", "sum", sum, lambda v: [v]),
    ChainOperation(
      "int", "len({v})", "count",
      len, lambda v: [0] * v if 0 <= v <= 5 else None,
    ),
    ChainOperation("int", "max({v})", "maximum", max, lambda v: [v]),
    ChainOperation("int", "min({v})", "minimum", min, lambda v: [v]),
    ChainOperation(
      "int", "{v}[0]", "take the first",
      lambda v: v[0], lambda v: [v],
    ),
    ChainOperation(
      "int", "{v}[-1]", "take the last",
      lambda v: v[-1], lambda v: [v],
    ),
    ChainOperation(
      "int", "", f"sum of each times {c}",
      lambda v: sum(i * c for i in v),
      lambda v: [v // c] if v % c == 0 else None,
      block=("s = 0", "for i in {v}:", f"  s = s + i * {c}", "{v} = s"),
    ),
  ][rng.integers(7)]  # fmt: skip  # Lines group related arguments.


def _letters(rng: np.random.Generator, count: int) -> str:
  return "".join(LETTERS[i] for i in rng.integers(len(LETTERS), size=count))


def _str_to_str(rng: np.random.Generator) -> ChainOperation:
  ending = _letters(rng, int(rng.integers(1, 3)))
  old, new = rng.permutation(list(LETTERS))[:2].tolist()
  return [
    ChainOperation(
      "str", "{v}[::-1]", "reverse",
      lambda v: v[::-1], lambda v: v[::-1],
    ),
    ChainOperation(
      "str", "{v}.upper()", "upper case",
      str.upper, lambda v: v.lower() if v == v.upper() else None,
    ),
    ChainOperation(
      "str", f"{{v}} + '{ending}'", f"append {ending}",
      lambda v: v + ending,
      lambda v: v[: -len(ending)] if v.endswith(ending) else None,
    ),
    ChainOperation(
      "str", f"{{v}}.replace('{old}', '{new}')",
      f"replace {old} by {new}",
      lambda v: v.replace(old, new), lambda v: v if old not in v else None,
    ),
    ChainOperation(
      "str", "{v}[1:]", "drop the first",
      lambda v: v[1:], lambda v: "a" + v,
    ),
    ChainOperation(
      "str", "{v} * 2", "repeat twice",
      lambda v: v * 2,
      lambda v: v[: len(v) // 2] if v[: len(v) // 2] * 2 == v else None,
    ),
  ][rng.integers(6)]  # fmt: skip  # Lines group related arguments.


def _str_to_int(rng: np.random.Generator) -> ChainOperation:
  letter = _letters(rng, 1)
  return [
    ChainOperation(
      "int", "len({v})", "count",
      len, lambda v: "a" * v if 0 <= v <= 8 else None,
    ),
    ChainOperation(
      "int", f"{{v}}.count('{letter}')", f"count {letter}",
      lambda v: v.count(letter),
      lambda v: letter * v if 0 <= v <= 8 else None,
    ),
  ][rng.integers(2)]  # fmt: skip  # Lines group related arguments.


def _str_to_list(rng: np.random.Generator) -> ChainOperation:
  del rng
  return ChainOperation(
    "list_of_str", "list({v})", "list the letters",
    list, lambda v: "".join(v),
  )  # fmt: skip  # Lines group related arguments.


# Type of a value -> (probability, maker) of each operation on it.
MAKERS: dict[str, list[tuple[float, Callable]]] = {
  "int": [
    (0.82, _int_to_int),
    (0.06, _int_to_list),
    (0.05, _int_to_tuple),
    (0.04, _int_to_dict),
    (0.03, _int_to_str),
  ],
  "list": [(0.6, _list_to_list), (0.4, _list_to_int)],
  "str": [(0.66, _str_to_str), (0.24, _str_to_int), (0.1, _str_to_list)],
}


def sample(rng: np.random.Generator, input_type: str) -> ChainOperation:
  """Samples an operation on a value of `input_type`, a key of `MAKERS`."""
  probabilities, makers = zip(*MAKERS[input_type], strict=True)
  return makers[rng.choice(len(makers), p=probabilities)](rng)
