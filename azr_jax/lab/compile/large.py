"""Finds results in a compiled program as large as the cache or as [S, S]."""

import dataclasses
from collections.abc import Iterator

from azr_jax.lab.compile import kernels
from azr_jax.lab.compile.hlo import Module, Operation, array_bytes

# Kernels may pad rows: an axis up to this many tokens longer is still a row.
_PADDING = 1024
# Operations whose result is one of their operands, or is counted elsewhere.
_PASS_THROUGH = frozenset(
  (
    *("parameter", "tuple", "get-tuple-element", "bitcast", "while", "call"),
    *("conditional", "copy-done", "async-done", "opt-barrier", "constant"),
    *("all-gather-done", "all-reduce-done", "collective-permute-done"),
  )
)
_IN_PLACE = frozenset(("dynamic-update-slice", "scatter"))


@dataclasses.dataclass(frozen=True)
class LargeResult:
  """A large result of an operation that is not a kernel.

  Attributes:
    name: name of the operation.
    op_name: path of the JAX functions that the operation was traced in.
    shape: dtype and shape of the array.
    bytes: size of the array on one device.
    reason: "cache" or "[S, S]".
  """

  name: str
  op_name: str
  shape: str
  bytes: float
  reason: str


def large_results(
  program: Module, cache_bytes: float, row_length: int
) -> list[LargeResult]:
  """Returns the large results outside kernels, largest first.

  Results that are written in place do not count.

  Args:
    program: the parsed program.
    cache_bytes: bytes of the keys, or values, of all slots on a device; 0 if
      the program has no cache.
    row_length: tokens of a training row; 0 if the program has no rows.
  """
  found = []
  for op in _operations(program):
    if op.kind in _PASS_THROUGH or kernels.kernel(program, op) is not None:
      continue
    if _is_in_place(program, op):
      continue
    for array in op.arrays:
      reason = ""
      longest = row_length + _PADDING
      if row_length and sum(row_length <= n < longest for n in array[1]) > 1:
        reason = "[S, S]"
      elif cache_bytes and array_bytes(array) >= cache_bytes:
        reason = "cache"
      if reason:
        shape = f"{array[0]}[{','.join(map(str, array[1]))}]"
        found.append(
          LargeResult(op.name, op.op_name, shape, array_bytes(array), reason)
        )
  return sorted(found, key=lambda large: -large.bytes)


def _operations(program: Module) -> Iterator[Operation]:
  """Yields the operations that run on their own, outside fusions."""
  names, seen = [program.entry], set()
  while names:
    name = names.pop()
    if name in seen:
      continue
    seen.add(name)
    for op in program.computations.get(name, ()):
      yield op
      if op.kind in ("while", "conditional", "call"):
        names += [called for group in op.called.values() for called in group]


def _is_in_place(program: Module, op: Operation) -> bool:
  """Returns whether an operation only updates a part of an operand."""
  if op.kind in _IN_PLACE or '"aliasing_operands":{"lists":[{' in op.attributes:
    return True
  if op.kind != "fusion":
    return False
  root = program.root(op.called["calls"][0])
  if root.kind == "bitcast" and root.operands:
    root = program.operations.get(root.operands[0], root)
  return root.kind in _IN_PLACE
