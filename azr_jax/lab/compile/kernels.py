"""What kernels in a compiled program do: operations and bytes, estimated here.

Compilers do not look into a kernel, so its time is the data sheet's for the
operations and bytes that it needs. It is an estimate, and a low one.
"""

import dataclasses
import math
import re

from azr_jax.lab.compile.hlo import Module, Operation, array_bytes
from azr_jax.parallel.chips import Chip

_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_FLOPS = re.compile(r'"cost_estimate":\s*\{[^}]*"flops":\s*"?(\d+)')
_BYTES = re.compile(r'"cost_estimate":\s*\{[^}]*"bytes_accessed":\s*"?(\d+)')
# Targets of kernels; others are helpers of the compiler or library products.
_KERNELS = re.compile(r"tpu_custom_call|cudnn\$fmha|triton|mosaic_gpu")
# Last words of a kernel's path that do not name it.
_GENERIC_NAMES = ("while", "body", "closed_call", "pallas_call")
# Products of a query and a key, or of weights and values, in flash attention:
# the backward pass computes the scores again. The first words that a kernel's
# name or target has.
_ATTENTION_PRODUCTS = {
  "splash_mha_fwd": 2,
  "splash_mha_dkv": 4,
  "splash_mha_dq": 3,
  "fmhaSoftmaxBackward": 5,
  "fmhaScaleBiasSoftmaxBackward": 5,
  "fmhaSoftmax": 2,
  "fmhaScaleBiasSoftmax": 2,
}
# A kernel's own name is the last word of its path.
_NAMED = ("tpu_custom_call", "__gpu$xla.gpu.triton")
# A call of these costs what they carry for each page of every row.
_PER_PAGE = frozenset(("decode_attention",))
# Axes of pages, and of the entries of recent tokens, of all layers.
_LAYERED_AXES = 5
# These kernels have no causal mask: a bias hides what a query must not see.
_DENSE = "ScaleBias"


@dataclasses.dataclass(frozen=True)
class Kernel:
  """A kernel of a program.

  Attributes:
    name: its function's name, or the library's for it.
    flops: operations of one call.
    bytes: bytes that one call reads and writes.
    is_per_page: whether both are for one page of every row; how many pages
      there are depends on the data.
  """

  name: str
  flops: float
  bytes: float
  is_per_page: bool = False

  def seconds(self, chip: Chip) -> float:
    """Returns the least time of one call by the chip's data sheet."""
    return max(self.flops / chip.flops, self.bytes / chip.bandwidth)


def kernel(program: Module, op: Operation) -> Kernel | None:
  """Returns the kernel that an operation calls; None: it is none.

  A kernel that carries a cost estimate is believed. Otherwise all of
  its operands count as read, and attention's operations follow from shapes.
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
  """Returns the bytes of an operand, or of a layer if it has all layers."""
  return sum(
    array_bytes(array) / (array[1][0] if len(array[1]) == _LAYERED_AXES else 1)
    for array in operand.arrays
  )


def _reader_of_pages(name: str, operands: list[Operation]) -> Kernel:
  """Returns a GPU's kernel of live pages: what a page of every row costs.

  Args:
    name: the kernel's.
    operands: of the kernel: among them queries [B, K, Q, E], keys and values in
      pages [L, N, K, ...].
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
  """Returns the operations of attention by the shapes of queries and keys.

  Rows count as one sequence each: other sequences that a kernel skips depend on
  the data.

  Args:
    op: the kernel.
    products: of queries and keys, or of weights and values; 0: no attention.
    is_causal: whether half of them are skipped.
    axis: of the tokens in queries and keys.
    operands: of the kernel.
  """
  heads = [
    shape
    for operand in operands
    for kind, shape in operand.arrays
    # The first ones are queries and keys.
    if len(shape) >= 3 and kind in ("bf16", "f16", "f32")
  ]
  if not products or len(heads) < 2:
    return 0.0
  queries, keys = heads[:2]
  # Splash's fused backward kernel also writes the gradient of the queries, once
  # per block of keys, which takes another product.
  is_fused = any(shape[1:] == queries for _, shape in op.arrays)
  pairs = math.prod(queries[:-1]) * keys[axis] * (0.5 if is_causal else 1.0)
  return 2.0 * (products + is_fused) * pairs * queries[-1]
