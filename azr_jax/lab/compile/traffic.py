"""Bytes that the operations of a program read and write in device memory.

An operation reads its operands and writes its results. One that takes slices of
an operand reads only these, and one that updates a part of an array in place
writes only that part, also inside a fusion.
"""

import collections

from azr_jax.lab.compile.hlo import Module, Operation

_UPDATE = "dynamic-update-slice"
_SLICES = ("dynamic-slice", "slice", "gather")
# Operations of a fusion that pass on the elements of their operand.
_PASSING = ("bitcast", "reshape", "convert", "copy", "transpose")


class Traffic:
  """Counts the bytes that operations of a program move."""

  def __init__(self, program: Module):
    self._program = program
    self._readers: dict[str, dict[str, list[tuple[Operation, int]]]] = {}

  def bytes(self, op: Operation) -> float:
    """Returns the bytes that an operation reads and writes."""
    # The bytes of an asynchronous operation are counted at its "-start".
    if op.kind.endswith("-done"):
      return 0.0
    if op.kind in _SLICES:
      return 2 * op.bytes
    if op.kind == _UPDATE:
      return 2 * self._size(op.operands[1])
    sizes = [self._size(name) for name in op.operands]
    (fused,) = op.called.get("calls", ("",))
    if op.kind != "fusion" or fused not in self._program.computations:
      return op.started_bytes + sum(sizes)
    read = sum(
      self._read_argument(fused, index, size)
      for index, size in enumerate(sizes)
    )
    return read + self._written(self._program.root(fused))

  def _size(self, name: str) -> float:
    """Returns the bytes of a value; 0 if the program does not define it."""
    op = self._program.operations.get(name)
    return op.bytes if op is not None else 0.0

  def _read_argument(self, fused: str, index: int, size: float) -> float:
    """Returns how many bytes of its argument `index` a fusion reads."""
    for op in self._program.computations[fused]:
      if op.kind == "parameter" and op.attributes.startswith(f"{index})"):
        return self._read(fused, op.name, size)
    return size

  def _read(self, fused: str, name: str, size: float) -> float:
    """Returns how many bytes of a value in a fusion its users read.

    Args:
      fused: the fusion's computation.
      name: the operation that computes the value.
      size: bytes of the whole value.
    """
    total = 0.0
    for op, index in self._users(fused).get(name, ()):
      if op.kind in _SLICES and index == 0:
        total += op.bytes
      elif op.kind == "fusion":
        total += self._read_argument(op.called["calls"][0], index, size)
      elif op.kind in _PASSING and op.bytes:
        # The operation passes the value on in another type. If its users read
        # a slice of it, then the fusion reads the same fraction of the input.
        total += self._read(fused, op.name, op.bytes) * size / op.bytes
      elif op.kind != _UPDATE or index:
        return size
    is_root = self._program.root(fused).name == name
    return size if is_root else min(total, size)

  def _users(self, fused: str) -> dict[str, list[tuple[Operation, int]]]:
    """Returns value -> the operations that read it, and as which operand."""
    if fused not in self._readers:
      found = collections.defaultdict(list)
      for op in self._program.computations[fused]:
        for index, name in enumerate(op.operands):
          found[name].append((op, index))
      self._readers[fused] = found
    return self._readers[fused]

  def _written(self, root: Operation) -> float:
    """Returns the bytes that a fusion with this root writes."""
    inner = [
      self._program.operations[name]
      for name in root.operands
      if name in self._program.operations
    ]
    if root.kind == "tuple":
      return sum(map(self._written, inner))
    if root.kind == "bitcast" and inner:
      return self._written(inner[0])
    return inner[1].bytes if root.kind == _UPDATE else root.bytes
