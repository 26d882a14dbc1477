"""Procedural programs: an opening (the arguments) and a chain of operations.

The generator knows each program's value after every step, forwards and
backwards, so that worked reasoning can be written without running it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from azr_jax.corpora.programs import operations
from azr_jax.corpora.programs.operations import Operation, Value

STEP_SHARES = (0.45, 0.35, 0.2)  # chains of one, two, three operations
LARGEST_INT = 50
LONGEST = 8
NAMES = ("x", "n", "a", "v", "y")


@dataclasses.dataclass(frozen=True)
class Opening:
  """How arguments become the first value of the chain.

  Attributes:
    parameters: parameter names.
    line: the statement that makes the first value, or "" if it is the
      argument itself.
    phrase: the same in words, or "".
    gives: type of the first value.
    draw: draws arguments.
    forward: arguments to the first value.
    backward: simple arguments that make a first value, or None.
  """

  parameters: tuple[str, ...]
  line: str
  phrase: str
  gives: str
  draw: Callable[[np.random.Generator], tuple[Value, ...]]
  forward: Callable[..., Value]
  backward: Callable[[Value], tuple[Value, ...] | None]


@dataclasses.dataclass(frozen=True)
class ProceduralProgram:
  """A program with what the generator knows about it."""

  code: str
  variable: str
  opening: Opening
  chain: tuple[Operation, ...]

  def phrases(self) -> list[str]:
    """The program in words, step by step."""
    opening = [self.opening.phrase] if self.opening.phrase else []
    return opening + [operation.phrase for operation in self.chain]

  def draw_arguments(self, rng: np.random.Generator) -> tuple[Value, ...]:
    """Draws arguments of the right types."""
    return self.opening.draw(rng)

  def trace(self, arguments: tuple[Value, ...]) -> list[Value] | None:
    """Values from the first to the returned; None if one fails or grows."""
    values = [self.opening.forward(*arguments)]
    for operation in self.chain:
      try:
        values.append(operation.forward(values[-1]))
      except (IndexError, ValueError):
        return None
    return values if all(_small(value) for value in values) else None

  def trace_back(self, output: Value) -> tuple[list[Value], Any] | None:
    """Simple values before each step, from the output to the arguments.

    Returns:
      (values from the output back to the first, arguments), checked by
      running forwards; None where the simple way does not lead back.
    """
    values = [output]
    for operation in reversed(self.chain):
      value = operation.backward(values[-1])
      if value is None:
        return None
      values.append(value)
    arguments = self.opening.backward(values[-1])
    if arguments is None or self.trace(arguments) is None:
      return None
    same = self.trace(arguments) == values[::-1]
    return (values, arguments) if same else None


def _small(value: Value) -> bool:
  if isinstance(value, int):
    return abs(value) <= LARGEST_INT
  if isinstance(value, dict):
    return all(_small(v) for v in value.values())
  if isinstance(value, list | tuple):
    return len(value) <= 5 and all(_small(v) for v in value)
  return len(value) <= LONGEST


def _small_int(rng: np.random.Generator) -> int:
  return int(rng.integers(0, 10))


def _small_list(rng: np.random.Generator) -> list[int]:
  return rng.integers(0, 10, size=rng.integers(2, 4)).tolist()


def _small_str(rng: np.random.Generator) -> str:
  count = int(rng.integers(2, 5))
  return "".join(rng.choice(list(operations.LETTERS), size=count))


def _draw_opening(rng: np.random.Generator, name: str) -> Opening:
  single = {"int": _small_int, "list": _small_list, "str": _small_str}
  kind = rng.choice(6, p=[0.34, 0.24, 0.22, 0.1, 0.05, 0.05])
  if kind < 3:
    gives = ("int", "list", "str")[kind]
    return Opening(
      (name,), "", "", gives,
      lambda rng: (single[gives](rng),), lambda v: v, lambda v: (v,),
    )  # fmt: skip
  if kind == 3:
    return Opening(
      ("a", "b"), f"{name} = a + b", "add both", "int",
      lambda rng: (_small_int(rng), _small_int(rng)),
      lambda a, b: a + b, lambda v: (v, 0),
    )  # fmt: skip
  if kind == 4:
    return Opening(
      ("p",), f"a, b = p\n  {name} = [b, a]", "swap the pair", "list",
      lambda rng: ((_small_int(rng), _small_int(rng)),),
      lambda p: [p[1], p[0]],
      lambda v: ((v[1], v[0]),) if len(v) == 2 else None,
    )  # fmt: skip
  return Opening(
    ("d",), f"{name} = d['a'] + d['b']", "add a and b of the dict", "int",
    lambda rng: ({"a": _small_int(rng), "b": _small_int(rng)},),
    lambda d: d["a"] + d["b"], lambda v: ({"a": v, "b": 0},),
  )  # fmt: skip


def generate_program(rng: np.random.Generator) -> ProceduralProgram:
  """Draws a program whose first drawn arguments run without trouble."""
  while True:
    name = str(rng.choice(NAMES))
    opening = _draw_opening(rng, name)
    if name in opening.parameters and opening.line:
      continue
    chain: list[Operation] = []
    kind = opening.gives
    for _ in range(1 + rng.choice(3, p=STEP_SHARES)):
      if kind not in operations.MAKERS:
        break
      chain.append(operations.draw(rng, kind))
      kind = chain[-1].gives
    if sum(bool(operation.helper) for operation in chain) > 1:
      continue
    program = ProceduralProgram(
      _render(name, opening, chain), name, opening, tuple(chain)
    )
    if program.trace(program.draw_arguments(rng)) is not None:
      return program


def _render(name: str, opening: Opening, chain: list[Operation]) -> str:
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


def _statement(name: str, operation: Operation) -> list[str]:
  if operation.expression:
    return [f"  {name} = {operation.expression.format(v=name)}"]
  return ["  " + line.format(v=name) for line in operation.block]


def argument_text(arguments: tuple[Value, ...]) -> str:
  """The text between the parentheses of a call."""
  return ", ".join(repr(argument) for argument in arguments)
