"""The kernels in a compiled program: estimated FLOPs and bytes.

Compilers do not see inside a kernel, so its time is estimated from its FLOPs
and bytes at data-sheet rates. This is a lower bound.
"""

import dataclasses
import math
import re

from azr_jax.lab.compile.hlo import Module, Operation, array_bytes
from azr_jax.parallel.chips import Chip

_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_FLOPS = re.compile(r'"cost_estimate":\s*\{[^}]*"flops":\s*"?(\d+)')
_BYTES = re.compile(r'"cost_estimate":\s*\{[^}]*"bytes_accessed":\s*"?(\d+)')
# Custom calls that are kernels; others are compiler helpers or matrix products.
_KERNELS = re.compile(r"tpu_custom_call|cudnn\$fmha|triton|mosaic_gpu")
# Last components of many kernels' paths, which do not tell kernels apart.
_GENERIC_NAMES = ("while", "body", "closed_call", "pallas_call")
# Matrix products in flash attention, of queries and keys or of weights and
# values; the backward pass recomputes the scores. The first key contained in
# the kernel's name or target applies.
_ATTENTION_PRODUCTS = {
  "splash_mha_fwd": 2,
  "splash_mha_dkv": 4,
  "splash_mha_dq": 3,
  "fmhaSoftmaxBackward": 5,
  "fmhaScaleBiasSoftmaxBackward": 5,
  "fmhaSoftmax": 2,
  "fmhaScaleBiasSoftmax": 2,
}
# Targets whose kernel is named by the end of its path.
_NAMED = ("tpu_custom_call", "__gpu$xla.gpu.triton")
# Kernels whose cost is estimated per page of every row.
_PER_PAGE = frozenset(("decode_attention",))
# Number of axes of an array with the pages or recent entries of all layers.
_LAYERED_AXES = 5
# Targets without a causal mask: they hide tokens by a bias instead.
_DENSE = "ScaleBias"


@dataclasses.dataclass(frozen=True)
class Kernel:
  """A kernel of a program.

  Attributes:
    name: name of its function, or the library's name for it.
    flops: FLOPs of one call.
    bytes: bytes that one call reads and writes.
    is_per_page: whether both count one page of every row, because the number of
      pages depends on the data.
  """

  name: str
  flops: float
  bytes: float
  is_per_page: bool = False

  def seconds(self, chip: Chip) -> float:
    """Returns the minimum time of one call at the chip's data-sheet rates."""
    return max(self.flops / chip.flops, self.bytes / chip.bandwidth)


def kernel(program: Module, op: Operation) -> Kernel | None:
  """Returns the kernel that an operation calls, or None.

  A kernel's own cost estimate is used if it has one. Otherwise all operands
  count as read, and the FLOPs of attention follow from the shapes.
  """
  if op.kind != "custom-call":
    return None
  found = _TARGET.search(op.attributes)
  target = found.group(1) if found else ""
  if not _KERNELS.search(target):
    return None
  name = target.strip("_").replace("$", "_")
  if target in _NAMED:
    words = [*op.op_name.split("/"), re.sub(r"\.\d+$", "", op.name)]
    name = [word for word in words if word not in _GENERIC_NAMES][-1]
  if (flops := _FLOPS.search(op.attributes)) is not None:
    size = _BYTES.search(op.attributes)
    moved = float(size[1]) if size else 0.0
    return Kernel(name, float(flops[1]), moved, name in _PER_PAGE)
  operands = [
    program.operations[operand]
    for operand in op.operands
    if operand in program.operations
  ]
  if name in _PER_PAGE:
    return _reader_of_pages(name, operands)
  moved = op.bytes + sum(map(_bytes_read, operands))
  products = next(
    (n for w, n in _ATTENTION_PRODUCTS.items() if w in f"{name} {target}"), 0
  )
  is_causal = _DENSE not in target
  axis = 1 if "cudnn" in target else -2
  flops = _flops(op, products, is_causal, axis, operands)
  return Kernel(name, flops, moved)


def _bytes_read(operand: Operation) -> float:
  """Returns an operand's bytes, counting one layer if it holds all layers."""
  return sum(
    array_bytes(array) / (array[1][0] if len(array[1]) == _LAYERED_AXES else 1)
    for array in operand.arrays
  )


def _reader_of_pages(name: str, operands: list[Operation]) -> Kernel:
  """Returns a GPU kernel of live pages, with the cost of a page of every row.

  Args:
    name: name of the kernel.
    operands: the kernel's operands, including queries [B, K, Q, E], which may
      be followed by the tokens' own keys and values, and keys and values in
      pages [L, P, K, ...].
  """
  arrays = [array for operand in operands for array in operand.arrays]
  (queries,) = (shape for _, shape in arrays if len(shape) == _LAYERED_AXES - 1)
  pools = [array for array in arrays if len(array[1]) == _LAYERED_AXES]
  numbers = sum(math.prod(shape[2:]) for _, shape in pools)
  page_bytes = sum(array_bytes((kind, shape[2:])) for kind, shape in pools)
  return Kernel(
    name,
    flops=2.0 * queries[0] * queries[2] * numbers,
    bytes=queries[0] * page_bytes,
    is_per_page=True,
  )


def _flops(
  op: Operation,
  products: int,
  is_causal: bool,
  axis: int,
  operands: list[Operation],
) -> float:
  """Returns the FLOPs of attention, from the shapes of queries and keys.

  Each row counts as one sequence: how much a kernel skips between packed
  sequences depends on the data.

  Args:
    op: the kernel's operation.
    products: number of matrix products; 0 if the kernel is not attention.
    is_causal: whether half of the work is skipped.
    axis: token axis of queries and keys.
    operands: the kernel's operands.
  """
  heads = [
    shape
    for operand in operands
    for kind, shape in operand.arrays
    # Queries and keys come first.
    if len(shape) >= 3 and kind in ("bf16", "f16", "f32")
  ]
  if not products or len(heads) < 2:
    return 0.0
  queries, keys = heads[:2]
  # Splash's fused backward kernel also writes the gradient of the queries per
  # block of keys, which takes another product.
  is_fused = any(shape[1:] == queries for _, shape in op.arrays)
  pairs = math.prod(queries[:-1]) * keys[axis] * (0.5 if is_causal else 1.0)
  return 2.0 * (products + is_fused) * pairs * queries[-1]
