"""Parses the text of a compiled program: operations, loops, array sizes.

A program is a set of computations. One is the entry, and loops, branches and
fusions call others. `cost.py` says what the operations cost.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Iterator

# Bytes per element, by dtype name.
_ELEMENT_BYTES = {
  "pred": 1,
  "s4": 0.5,
  "u4": 0.5,
  "s8": 1,
  "u8": 1,
  "f8e4m3fn": 1,
  "f8e5m2": 1,
  "bf16": 2,
  "f16": 2,
  "s16": 2,
  "u16": 2,
  "f32": 4,
  "s32": 4,
  "u32": 4,
  "f64": 8,
  "s64": 8,
  "u64": 8,
}
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{\s*$")
_SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")
# The end of a computation, possibly with the core that runs it.
_END = re.compile(r"\}(, execution_thread=.*)?$")
_OPERATION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(
  r"\b(calls|to_apply|body|condition|called_computations|branch_computations|"
  r"true_computation|false_computation)=(?:\{([^}]*)\}|%?([\w.\-]+))"
)
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_CYCLES = re.compile(r'"estimated_cycles":"?(\d+)')
_KNOWN_TRIPS = re.compile(r'known_trip_count"?[:=]\s*\{"?n"?[:=]\s*"?(\d+)')
# The compiler writes the largest integer for "no estimate".
_UNKNOWN_CYCLES = 2**62
_INDEX = re.compile(r"\bindex=(\d+)")


@dataclasses.dataclass(frozen=True)
class Operation:
  """One operation of a computation.

  Attributes:
    name: a name that is unique in the program.
    kind: the opcode, such as fusion or all-gather-start.
    shapes: the result types, as text.
    operands: names of the operations that it reads.
    attributes: the text after the operands.
    is_root: whether its result is the result of the computation.
  """

  name: str
  kind: str
  shapes: str
  operands: tuple[str, ...]
  attributes: str
  is_root: bool

  @functools.cached_property
  def cycles(self) -> int:
    """The TPU compiler's estimated cycles, or 0 without an estimate."""
    found = _CYCLES.search(self.attributes)
    cycles = int(found.group(1)) if found else 0
    return cycles if cycles < _UNKNOWN_CYCLES else 0

  @functools.cached_property
  def op_name(self) -> str:
    """The name path in JAX's program (`op_name`); may be empty."""
    found = _OP_NAME.search(self.attributes)
    return found.group(1) if found else ""

  @functools.cached_property
  def called(self) -> dict[str, tuple[str, ...]]:
    """The computations that it calls, by attribute name."""
    return {
      role: tuple(
        name.strip().lstrip("%") for name in (group or single).split(",")
      )
      for role, group, single in _CALLED.findall(self.attributes)
    }

  @functools.cached_property
  def arrays(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Dtype and shape of each array of its result."""
    return tuple(
      (kind, tuple(int(n) for n in dims.split(",") if n))
      for kind, dims in _SHAPE.findall(self.shapes)
    )

  @functools.cached_property
  def bytes(self) -> float:
    """Size of its results on one device, in bytes."""
    return sum(map(array_bytes, self.arrays))

  @property
  def started_bytes(self) -> float:
    """Bytes of the results of an asynchronous start.

    Except for an all-reduce, the operands' types precede the results'. A start
    may also list scalars, which are neither.
    """
    if not self.kind.endswith("-start") or self.kind == "all-reduce-start":
      return self.bytes
    sizes = [array_bytes(array) for array in self.arrays if array[1]]
    return sum(sizes[len(sizes) // 2 :])


@dataclasses.dataclass(frozen=True)
class Module:
  """The computations of a compiled program.

  Attributes:
    computations: name -> its operations, in execution order.
    entry: name of the computation that runs first.
  """

  computations: dict[str, tuple[Operation, ...]]
  entry: str

  def root(self, computation: str) -> Operation:
    """Returns the operation that yields the result of a computation."""
    operations = self.computations[computation]
    return next((op for op in operations if op.is_root), operations[-1])

  @functools.cached_property
  def operations(self) -> dict[str, Operation]:
    """Every operation by name."""
    return {op.name: op for ops in self.computations.values() for op in ops}

  def inner(self, op: Operation) -> Iterator[Operation]:
    """Yields the operations of the computations that an operation calls."""
    for names in op.called.values():
      for name in names:
        yield from self.computations.get(name, ())


def array_bytes(array: tuple[str, tuple[int, ...]]) -> float:
  """Returns the size in bytes of an array, given as (dtype, shape)."""
  kind, shape = array
  return _ELEMENT_BYTES.get(kind, 4) * math.prod(shape)


def parse(text: str) -> Module:
  """Parses a program.

  Args:
    text: `compiled.as_text()`.
  """
  computations: dict[str, list[Operation]] = {}
  entry, current = "", None
  for line in _joined(text):
    header = _COMPUTATION.match(line)
    if header and not line.startswith(" "):
      current = header.group(2)
      computations[current] = []
      entry = current if header.group(1) else entry
    elif current is not None and (found := _OPERATION.match(line)):
      root, name, shapes, kind = found.groups()
      operands, attributes = _split_operands(line[found.end() :])
      computations[current].append(
        Operation(name, kind, shapes, operands, attributes, bool(root))
      )
  return Module({k: tuple(v) for k, v in computations.items()}, entry)


def _joined(text: str) -> Iterator[str]:
  """Yields a program's lines, joining attributes that span several."""
  pending = ""
  for line in text.splitlines():
    if pending and not line.startswith("  ") and not _END.match(line):
      pending += line
      continue
    if pending:
      yield pending
    pending = line if line.startswith("  ") else ""
    if not pending:
      yield line
  if pending:
    yield pending


def _split_operands(text: str) -> tuple[tuple[str, ...], str]:
  """Splits the text after an opcode's parenthesis into operands and rest."""
  depth = 1
  for index, character in enumerate(text):
    depth += (character == "(") - (character == ")")
    if depth == 0:
      inside = text[:index]
      # Constants and parameters have a value in their parentheses.
      names = tuple(_NAME.findall(inside))
      rest = text[index + 1 :]
      return names, rest if names else f"{inside}){rest}"
  return (), text


@dataclasses.dataclass(frozen=True)
class TripCount:
  """How often a loop's body runs per execution of the loop.

  Attributes:
    known: the trip count, or None if it depends on data.
    maximum: an upper bound if it depends on data; None if there is none.
  """

  known: int | None
  maximum: int | None = None


def trip_count(program: Module, loop: Operation) -> TripCount:
  """Returns how often a loop's body runs.

  Uses the compiler's known count, or else derives it from a condition "index <
  constant" and the constant that the body adds to the index. XLA unrolls the
  loop of a windowed einsum, so that its index grows by two.
  """
  if known := _KNOWN_TRIPS.search(loop.attributes):
    return TripCount(int(known.group(1)))
  (condition,), (body,) = loop.called["condition"], loop.called["body"]
  compares = [
    op for op in _with_fused(program, condition) if op.kind == "compare"
  ]
  bounds = [
    bound
    for op in compares
    if "direction=LT" in op.attributes
    and (bound := _bound(program, condition, op)) is not None
  ]
  if not bounds:
    return TripCount(None)
  if len(compares) > 1:
    return TripCount(None, min(bounds))
  return TripCount(-(-bounds[0] // _step(program, compares[0], body)))


def _with_fused(program: Module, name: str) -> list[Operation]:
  """Returns the operations of a computation and of its fusions."""
  found = []
  for op in program.computations.get(name, ()):
    found.append(op)
    for names in op.called.values():
      for called in names:
        found += program.computations.get(called, ())
  return found


def _bound(program: Module, condition: str, op: Operation) -> int | None:
  """Returns the constant that a comparison tests against, or None."""
  values = _constants(program, op.operands)
  if values:
    return values[-1]
  if op in program.computations[condition]:
    return None
  # The comparison is inside a fusion, and the constant is a parameter of it.
  names = [other.name for other in _with_fused(program, condition)]
  values = _constants(program, names)
  return values[0] if len(values) == 1 else None


def _constants(program: Module, names: Iterable[str]) -> list[int]:
  """Returns the values of the integer constants among these operations."""
  found = (program.operations.get(name) for name in names)
  values = (
    re.match(r"(-?\d+)\)", op.attributes)
    for op in found
    if op is not None and op.kind == "constant"
  )
  return [int(value.group(1)) for value in values if value]


def _step(program: Module, compare: Operation, body: str) -> int:
  """Returns the increment of a loop's index; 1 if it cannot be determined."""
  index = None
  for name in compare.operands:
    op = program.operations.get(name)
    if op is not None and (found := _INDEX.search(op.attributes)):
      index = int(found.group(1))
  root = program.root(body)
  if index is None or root.kind != "tuple":
    return 1
  added = program.operations[root.operands[index]]
  steps = _constants(program, added.operands) if added.kind == "add" else []
  return max(1, *steps) if steps else 1
