"""The collectives of a compiled program: kind, size and bytes sent."""

import dataclasses
import math
import re
from collections.abc import Mapping

from azr_jax.lab.compile.hlo import Module, Operation

KINDS = (
  "all-gather",
  "all-reduce",
  "reduce-scatter",
  "all-to-all",
  "collective-permute",
)
_MESH = re.compile(
  r"replica_groups=mesh\[([^\]]*)\][^{]*(?:\([^)]*\)\s*)?\{([^}]*)\}"
)
_AXIS = re.compile(r"'(\w+)'(?:=(\d+))?")
_IOTA = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=")
_LIST = re.compile(r"replica_groups=\{\{([^}]*)\}")
_PAIRS = re.compile(r"source_target_pairs=\{(.*?)\}\}")
_CHANNEL = re.compile(r"\bchannel_id=(\d+)")
_FUSED_START = 'custom_call_target="AsyncCollectiveStart"'
_FUSED_DONE = 'custom_call_target="AsyncCollectiveDone"'


@dataclasses.dataclass(frozen=True)
class Collective:
  """A collective operation of a program.

  Attributes:
    kind: one of `KINDS`.
    bytes: size of its result on one device.
    group: number of devices that take part; 0 if the text does not say.
    asynchronous: whether other operations may run at the same time.
  """

  kind: str
  bytes: float
  group: int
  asynchronous: bool

  @property
  def sent_bytes(self) -> float:
    """Bytes that a device sends if the devices of a group form a ring.

    In a ring of n devices, each sends b (n-1)/n to all-gather a result of b
    bytes, twice that to all-reduce it, and b (n-1) to reduce-scatter it.
    """
    n = max(self.group, 2)
    return (
      self.bytes
      * {
        "all-gather": (n - 1) / n,
        "all-reduce": 2 * (n - 1) / n,
        "reduce-scatter": n - 1,
        "all-to-all": (n - 1) / n,
        "collective-permute": 1,
      }[self.kind]
    )


def collective(program: Module, op: Operation) -> Collective | None:
  """Returns the collective that an operation performs or starts, or None.

  A start is asynchronous unless the compiler marks it as synchronous. Starts
  are separate operations, computations that run concurrently (XLA:GPU), or
  fusions (`xla_tpu_enable_async_collective_fusion`), where some later fusions
  do a step of the collective alongside a matrix product.
  """
  kind = op.kind.removesuffix("-start")
  if kind in KINDS:
    return Collective(
      kind,
      op.started_bytes,
      _group(op),
      op.kind != kind and not _is_synchronous(op),
    )
  if op.kind not in ("async-start", "fusion"):
    return None
  for inner in program.inner(op):
    kind = inner.kind.removesuffix("-start")
    if kind not in KINDS:
      continue
    if op.kind == "async-start" or _holds(program, op, _FUSED_START):
      return Collective(
        kind, inner.started_bytes, _group(inner), not _is_synchronous(op)
      )
    if op.cycles or _holds(program, op, _FUSED_DONE):
      return None
    if kind == "all-reduce" and op.bytes < inner.bytes:
      kind = "reduce-scatter"  # Each device keeps its share of the sums.
    return Collective(kind, op.bytes, _group(inner), False)
  return None


def ends(program: Module, op: Operation) -> bool:
  """Returns whether an operation waits for an asynchronous one to finish."""
  return op.kind.endswith("-done") or _holds(program, op, _FUSED_DONE)


def channel(program: Module, op: Operation) -> str:
  """Returns the channel of a collective, shared by its start and its end.

  Without a channel id, this is the name of the start, which the end reads.
  """
  for one in (op, *program.inner(op)):
    if found := _CHANNEL.search(one.attributes):
      return found.group(1)
  return op.operands[0] if op.kind.endswith("-done") else op.name


def _holds(program: Module, op: Operation, target: str) -> bool:
  """Returns whether a fusion contains a custom call to this target."""
  return op.kind == "fusion" and any(
    target in inner.attributes for inner in program.inner(op)
  )


def _is_synchronous(op: Operation) -> bool:
  """Returns whether the compiler marked a start as synchronous."""
  return '"is_sync":true' in op.attributes


def _group(op: Operation) -> int:
  """Returns the size of a collective's device group."""
  text = op.attributes
  if found := _IOTA.search(text):
    return int(found.group(2))
  if found := _LIST.search(text):
    return len(found.group(1).split(","))
  if found := _MESH.search(text):
    sizes = {name: int(size or 1) for name, size in _AXIS.findall(found[1])}
    return math.prod(sizes[name] for name, _ in _AXIS.findall(found[2]))
  if found := _PAIRS.search(text):
    return found.group(1).count("{")
  return 0


@dataclasses.dataclass
class Total:
  """The collectives of one kind in a program.

  Attributes:
    count: number of runs.
    asynchronous: number of asynchronous runs.
    bytes: total size of their results on one device.
    sent_bytes: total bytes that one device sends.
  """

  count: float = 0.0
  asynchronous: float = 0.0
  bytes: float = 0.0
  sent_bytes: float = 0.0


def totals(
  counts: Mapping[tuple[Collective, str], float],
) -> dict[str, Total]:
  """Returns the collectives by kind, without kinds that do not occur.

  Args:
    counts: (collective, part of the model) -> number of runs.
  """
  found: dict[str, Total] = {}
  for kind in KINDS:
    for (one, _), count in counts.items():
      if one.kind != kind or not count:
        continue
      total = found.setdefault(kind, Total())
      total.count += count
      total.asynchronous += count * one.asynchronous
      total.bytes += count * one.bytes
      total.sent_bytes += count * one.sent_bytes
  return found
