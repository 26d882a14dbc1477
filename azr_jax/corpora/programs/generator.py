"""Procedural programs: an opening (the arguments) and a chain of operations.

The generator computes a program's value after every step, forwards and
backwards, so chains of thought can be written without running the program.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from azr_jax.corpora.programs import operations
from azr_jax.corpora.programs.operations import ChainOperation, Value

# Probabilities of chains with one, two and three operations.
CHAIN_LENGTH_PROBABILITIES = (0.45, 0.35, 0.2)
# Programs with larger values are rejected.
MAX_INT = 50
MAX_ITEMS = 5
MAX_CHARS = 8
VARIABLE_NAMES = ("x", "n", "a", "v", "y")


@dataclasses.dataclass(frozen=True)
class Opening:
  """The step from the arguments to the first value of the chain.

  Attributes:
    parameters: parameter names.
    line: the statement that computes the first value, or "" if the first value
      is the argument.
    phrase: the statement in words, or "".
    output_type: type name of the first value.
    sample: samples arguments.
    forward: maps arguments to the first value.
    inverse: maps a first value to arguments that result in it, or to None.
  """

  parameters: tuple[str, ...]
  line: str
  phrase: str
  output_type: str
  sample: Callable[[np.random.Generator], tuple[Value, ...]]
  forward: Callable[..., Value]
  inverse: Callable[[Value], tuple[Value, ...] | None]


@dataclasses.dataclass(frozen=True)
class ProceduralProgram:
  """A program with the opening and operations that it is made of.

  Attributes:
    code: the text of the program.
    variable: the name of the variable that the chain changes.
    opening: the step from the arguments to the first value.
    chain: the operations, in order.
  """

  code: str
  variable: str
  opening: Opening
  chain: tuple[ChainOperation, ...]

  def phrases(self) -> list[str]:
    """Returns the steps of the program in words."""
    opening = [self.opening.phrase] if self.opening.phrase else []
    return opening + [operation.phrase for operation in self.chain]

  def draw_arguments(self, rng: np.random.Generator) -> tuple[Value, ...]:
    """Draws arguments for one call."""
    return self.opening.sample(rng)

  def trace(
    self, arguments: tuple[Value, ...], max_int: int = MAX_INT
  ) -> list[Value] | None:
    """Returns all values from the first to the returned one.

    Returns None if an operation fails, an integer is beyond `max_int` or
    another value is too long.
    """
    values = [self.opening.forward(*arguments)]
    for operation in self.chain:
      try:
        values.append(operation.forward(values[-1]))
      except (IndexError, ValueError):
        return None
    is_small = all(_is_small(value, max_int) for value in values)
    return values if is_small else None

  def trace_back(self, output: Value) -> tuple[list[Value], Any] | None:
    """Inverts the program for an output, one operation at a time.

    Values must be as small as `trace` allows by default.

    Returns:
      (values from the output back to the first value, arguments). None if an
      operation has no simple inverse, or the arguments give other values.
    """
    values = [output]
    for operation in reversed(self.chain):
      value = operation.inverse(values[-1])
      if value is None:
        return None
      values.append(value)
    arguments = self.opening.inverse(values[-1])
    if arguments is None or self.trace(arguments) is None:
      return None
    is_inverse = self.trace(arguments) == values[::-1]
    return (values, arguments) if is_inverse else None


def _is_small(value: Value, max_int: int) -> bool:
  if isinstance(value, int):
    return abs(value) <= max_int
  if isinstance(value, dict):
    return all(_is_small(v, max_int) for v in value.values())
  if isinstance(value, list | tuple):
    is_small = all(_is_small(v, max_int) for v in value)
    return len(value) <= MAX_ITEMS and is_small
  return len(value) <= MAX_CHARS


def _small_int(rng: np.random.Generator) -> int:
  return int(rng.integers(0, 10))


def _small_list(rng: np.random.Generator) -> list[int]:
  return rng.integers(0, 10, size=rng.integers(2, 4)).tolist()


def _small_str(rng: np.random.Generator) -> str:
  count = int(rng.integers(2, 5))
  return "".join(rng.choice(list(operations.LETTERS), size=count))


def _draw_opening(rng: np.random.Generator, name: str) -> Opening:
  single = {"int": _small_int, "list": _small_list, "str": _small_str}
  variant = rng.choice(6, p=[0.34, 0.24, 0.22, 0.1, 0.05, 0.05])
  if variant < 3:
    output_type = ("int", "list", "str")[variant]
    return Opening(
      (name,), "", "", output_type,
      lambda rng: (single[output_type](rng),), lambda v: v, lambda v: (v,),
    )  # fmt: skip  # Lines group related arguments.
  if variant == 3:
    return Opening(
      ("a", "b"), f"{name} = a + b", "add both", "int",
      lambda rng: (_small_int(rng), _small_int(rng)),
      lambda a, b: a + b, lambda v: (v, 0),
    )  # fmt: skip  # Lines group related arguments.
  if variant == 4:
    return Opening(
      ("p",), f"a, b = p\n  {name} = [b, a]", "swap the pair", "list",
      lambda rng: ((_small_int(rng), _small_int(rng)),),
      lambda p: [p[1], p[0]],
      lambda v: ((v[1], v[0]),) if len(v) == 2 else None,
    )  # fmt: skip  # Lines group related arguments.
  return Opening(
    ("d",), f"{name} = d['a'] + d['b']", "add a and b of the dict", "int",
    lambda rng: ({"a": _small_int(rng), "b": _small_int(rng)},),
    lambda d: d["a"] + d["b"], lambda v: ({"a": v, "b": 0},),
  )  # fmt: skip  # Lines group related arguments.


def generate_program(
  rng: np.random.Generator,
  length_probabilities: Sequence[float] = CHAIN_LENGTH_PROBABILITIES,
) -> ProceduralProgram:
  """Draws a program that has a trace for at least one draw of arguments.

  Args:
    rng: the source of all random draws.
    length_probabilities: the probability of each number of operations, from
      one on. A chain is shorter if a value's type allows no further operation.
  """
  while True:
    name = str(rng.choice(VARIABLE_NAMES))
    opening = _draw_opening(rng, name)
    if name in opening.parameters and opening.line:
      continue
    chain: list[ChainOperation] = []
    type_name = opening.output_type
    length = 1 + rng.choice(len(length_probabilities), p=length_probabilities)
    for _ in range(length):
      if type_name not in operations.MAKERS:
        break
      chain.append(operations.sample(rng, type_name))
      type_name = chain[-1].output_type
    if sum(bool(operation.helper) for operation in chain) > 1:
      continue
    program = ProceduralProgram(
      _render(name, opening, chain), name, opening, tuple(chain)
    )
    if program.trace(program.draw_arguments(rng)) is not None:
      return program


def _render(name: str, opening: Opening, chain: list[ChainOperation]) -> str:
  lines = [operation.helper for operation in chain if operation.helper]
  lines.append(f"def f({', '.join(opening.parameters)}):")
  if opening.line:
    lines.append(f"  {opening.line}")
  for operation in chain[:-1]:
    lines += _statement(name, operation)
  last = chain[-1]
  if last.expression:
    lines.append(f"  return {last.expression.format(v=name)}")
  else:
    lines += _statement(name, last)
    lines.append(f"  return {name}")
  return "\n".join(lines)


def _statement(name: str, operation: ChainOperation) -> list[str]:
  if operation.expression:
    return [f"  {name} = {operation.expression.format(v=name)}"]
  return ["  " + line.format(v=name) for line in operation.block]


def argument_text(arguments: tuple[Value, ...]) -> str:
  """Returns the text between the parentheses of a call."""
  return ", ".join(repr(argument) for argument in arguments)
