"""Reads the text of a compiled program: operations, loops, sizes, collectives.

A program is a set of computations; one of them is the entry, and loops,
branches and fusions call others. What an operation costs is in `cost.py`.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Iterator

# Bytes of an element, by the type's name.
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
# The end of a computation, perhaps with the core that runs it.
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
# The compiler's word for "no estimate" is the largest integer.
_UNKNOWN_CYCLES = 2**62
_INDEX = re.compile(r"\bindex=(\d+)")


@dataclasses.dataclass(frozen=True)
class Operation:
  """One operation of a computation.

  Attributes:
    name: its name, unique in the program.
    kind: the opcode, such as fusion or all-gather-start.
    shapes: the types of its results, as text.
    operands: names of the operations that it reads.
    attributes: the text after the operands.
    is_root: whether its result is the computation's.
  """

  name: str
  kind: str
  shapes: str
  operands: tuple[str, ...]
  attributes: str
  is_root: bool

  @functools.cached_property
  def cycles(self) -> int:
    """The TPU compiler's estimate of its time; 0 where there is none."""
    found = _CYCLES.search(self.attributes)
    cycles = int(found.group(1)) if found else 0
    return cycles if cycles < _UNKNOWN_CYCLES else 0

  @functools.cached_property
  def op_name(self) -> str:
    """The path of names in JAX's program (`op_name`); may be empty."""
    found = _OP_NAME.search(self.attributes)
    return found.group(1) if found else ""

  @functools.cached_property
  def called(self) -> dict[str, tuple[str, ...]]:
    """The computations that it calls, by the attribute that names them."""
    return {
      role: tuple(
        name.strip().lstrip("%") for name in (group or single).split(",")
      )
      for role, group, single in _CALLED.findall(self.attributes)
    }

  @functools.cached_property
  def arrays(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Type and shape of each array of its result."""
    return tuple(
      (kind, tuple(int(n) for n in dims.split(",") if n))
      for kind, dims in _SHAPE.findall(self.shapes)
    )

  @functools.cached_property
  def bytes(self) -> float:
    """Bytes of its results on one device."""
    return sum(map(array_bytes, self.arrays))

  @property
  def started_bytes(self) -> float:
    """Bytes of the results of an asynchronous start.

    The operands' types stand before the results', except for an all-reduce; a
    start may also carry scalars, which are neither.
    """
    if not self.kind.endswith("-start") or self.kind == "all-reduce-start":
      return self.bytes
    sizes = [array_bytes(array) for array in self.arrays if array[1]]
    return sum(sizes[len(sizes) // 2 :])


@dataclasses.dataclass(frozen=True)
class Module:
  """The computations of a compiled program.

  Attributes:
    computations: name -> its operations, in the order in which they run.
    entry: name of the computation that runs first.
  """

  computations: dict[str, tuple[Operation, ...]]
  entry: str

  def root(self, computation: str) -> Operation:
    """Returns the operation whose result is a computation's."""
    operations = self.computations[computation]
    return next((op for op in operations if op.is_root), operations[-1])

  @functools.cached_property
  def operations(self) -> dict[str, Operation]:
    """Every operation by its name."""
    return {op.name: op for ops in self.computations.values() for op in ops}

  def inner(self, op: Operation) -> Iterator[Operation]:
    """Yields the operations of the computations that an operation calls."""
    for names in op.called.values():
      for name in names:
        yield from self.computations.get(name, ())


def array_bytes(array: tuple[str, tuple[int, ...]]) -> float:
  """Returns the bytes of an array of a type and a shape."""
  kind, shape = array
  return _ELEMENT_BYTES.get(kind, 4) * math.prod(shape)


def parse(text: str) -> Module:
  """Reads a program.

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
  """Yields a program's lines; an operation's attributes may take several."""
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
  """Splits what follows an opcode's parenthesis into operands and the rest."""
  depth = 1
  for index, character in enumerate(text):
    depth += (character == "(") - (character == ")")
    if depth == 0:
      inside = text[:index]
      # A constant or a parameter has a value in its parentheses.
      names = tuple(_NAME.findall(inside))
      rest = text[index + 1 :]
      return names, rest if names else f"{inside}){rest}"
  return (), text


@dataclasses.dataclass(frozen=True)
class TripCount:
  """How often a loop's body runs each time.

  Attributes:
    known: the number, or None if it depends on data.
    maximum: a bound where it depends on data; None: there is none.
  """

  known: int | None
  maximum: int | None = None


def trip_count(program: Module, loop: Operation) -> TripCount:
  """Returns how often a loop runs.

  It is the compiler's known count, or follows from a condition "index <
  constant" and from the constant that the body adds to that index. XLA unrolls
  the loop of a windowed einsum, whose index then grows by two.
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
  """Returns a computation's operations and those of its fusions."""
  found = []
  for op in program.computations.get(name, ()):
    found.append(op)
    for names in op.called.values():
      for called in names:
        found += program.computations.get(called, ())
  return found


def _bound(program: Module, condition: str, op: Operation) -> int | None:
  """Returns the constant that a comparison compares with, if there is one."""
  values = _constants(program, op.operands)
  if values:
    return values[-1]
  if op in program.computations[condition]:
    return None
  # The comparison is in a fusion, and the constant a parameter of it.
  names = [other.name for other in _with_fused(program, condition)]
  values = _constants(program, names)
  return values[0] if len(values) == 1 else None


def _constants(program: Module, names: Iterable[str]) -> list[int]:
  """Returns the values of the integer constants among operations."""
  found = (program.operations.get(name) for name in names)
  values = (
    re.match(r"(-?\d+)\)", op.attributes)
    for op in found
    if op is not None and op.kind == "constant"
  )
  return [int(value.group(1)) for value in values if value]


def _step(program: Module, compare: Operation, body: str) -> int:
  """Returns what a loop's body adds to its index; 1 if that is unclear."""
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
