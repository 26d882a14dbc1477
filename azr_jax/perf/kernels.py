"""What kernels in a compiled program do: operations and bytes, estimated here.

Compilers do not look into a kernel, so its time is the data sheet's for the
operations and bytes that it needs. It is an estimate of ours, and a low one.
"""

import dataclasses
import math
import re

from azr_jax.parallel.chips import Chip
from azr_jax.perf.hlo import Operation, Program

_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_FLOPS = re.compile(r'"cost_estimate":\s*\{[^}]*"flops":\s*"?(\d+)')
_BYTES = re.compile(r'"cost_estimate":\s*\{[^}]*"bytes_accessed":\s*"?(\d+)')
# Targets of kernels; others are helpers of the compiler or library products.
_KERNELS = re.compile(r"tpu_custom_call|cudnn\$fmha|triton|mosaic_gpu")
# Products of a query and a key, or of weights and values, in flash attention:
# the backward pass computes the scores again. The first words that a kernel's
# name or target has.
_ATTENTION_PRODUCTS = {
  "splash_mha_fwd": 2,
  "splash_mha_dkv": 5,
  "splash_mha_dq": 3,
  "flash_mha_dkv": 4,
  "fmhaSoftmaxBackward": 5,
  "fmhaScaleBiasSoftmaxBackward": 5,
  "fmhaSoftmax": 2,
  "fmhaScaleBiasSoftmax": 2,
}
# These kernels have no causal mask: a bias hides what a query must not see.
_DENSE = "ScaleBias"


@dataclasses.dataclass(frozen=True)
class Kernel:
  """A kernel of a program.

  Attributes:
    name: its function's name, or the library's for it.
    flops: operations of one call.
    bytes: bytes that one call reads and writes.
  """

  name: str
  flops: float
  bytes: float

  def seconds(self, chip: Chip) -> float:
    """Returns the least time of one call by the chip's data sheet."""
    return max(self.flops / chip.flops, self.bytes / chip.bandwidth)


def kernel(program: Program, op: Operation) -> Kernel | None:
  """Returns the kernel that an operation calls; None: it is none.

  A kernel that carries a cost estimate is taken at its word. Otherwise all of
  its operands count as read, and attention's operations follow from shapes.
  """
  if op.kind != "custom-call":
    return None
  found = _TARGET.search(op.attributes)
  target = found.group(1) if found else ""
  if not _KERNELS.search(target):
    return None
  name = target.strip("_").replace("$", "_")
  if target == "tpu_custom_call":
    name = re.sub(r"\.\d+$", "", op.name)
  if (flops := _FLOPS.search(op.attributes)) is not None:
    size = _BYTES.search(op.attributes)
    return Kernel(name, float(flops[1]), float(size[1]) if size else 0.0)
  operands = [
    program.operations[operand]
    for operand in op.operands
    if operand in program.operations
  ]
  moved = op.bytes + sum(operand.bytes for operand in operands)
  return Kernel(name, _flops(name, target, operands), moved)


def _flops(name: str, target: str, operands: list[Operation]) -> float:
  """Returns the operations of attention by its queries and keys; else 0."""
  text = f"{name} {target}"
  products = next(
    (n for word, n in _ATTENTION_PRODUCTS.items() if word in text), 0
  )
  heads = [
    shape
    for operand in operands
    for kind, shape in operand.arrays
    # The first ones are queries and keys [..., tokens, head size].
    if len(shape) >= 3 and kind != "s8"
  ]
  if not products or len(heads) < 2:
    return 0.0
  queries, keys = heads[:2]
  pairs = math.prod(queries[:-1]) * keys[-2] * (1.0 if _DENSE in text else 0.5)
  return 2.0 * products * pairs * queries[-1]
