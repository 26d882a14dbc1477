"""What a compiled program costs: its operations, with loops multiplied out.

The TPU compiler writes an estimate of cycles at every operation. It leaves out
collectives and what is inside of kernels, which are listed apart. A loop whose
length the compiler does not know keeps a cost of its own, so that a caller can
say how often it runs.
"""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

from azr_jax.perf import collectives, hlo, kernels
from azr_jax.perf.collectives import Collective
from azr_jax.perf.hlo import Operation, Program
from azr_jax.perf.kernels import Kernel
from azr_jax.perf.parts import LOGITS, Finder

# Operations that take no time on the device by themselves.
_FREE = frozenset(
  (
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast"),
    *("partition-id", "replica-id", "after-all", "opt-barrier", "domain"),
    *("async-update", "add-dependency"),
  )
)
# Custom calls that only hand something to the compiler.
_ANNOTATIONS = (
  *("AllocateBuffer", "AssumeGatherIndicesInBound", "ZeroCrop"),
  *("GatherScatterIndicesBitpacked", "PrepareAsyncCall"),
)
# A computation that a GPU is sent as one graph.
_COMMAND_BUFFER = "command_buffer"
# Names of loops of unknown length, after what an iteration of them is.
TOKEN, MICRO_BATCH = "token", "micro_batch"
# An optimizer step on a minibatch, in which a loop goes over micro-batches.
OPTIMIZER_STEP = "optimizer_step"
# A page that attention reads, and one that is written.
PAGE, WRITTEN_PAGE = "page", "written_page"
# Compiled function -> its loops of unknown length, the outermost first.
_LOOPS = {
  "decode": (TOKEN,),
  "update": (MICRO_BATCH,),
  "prepare": (MICRO_BATCH,),
  "estimate": (MICRO_BATCH,),
  "critic_update": (OPTIMIZER_STEP, MICRO_BATCH),
}


def _counts() -> Any:
  return dataclasses.field(
    default_factory=lambda: collections.defaultdict(float)
  )


@dataclasses.dataclass
class Cost:
  """What a program, or one iteration of a loop, costs on one device.

  Attributes:
    cycles: part of the model -> cycles by the compiler's estimate.
    launches: operations that the device is given one by one.
    kernels: (kernel, part) -> how often it runs.
    collectives: (collective, part) -> how often it runs.
    hidden: (collective, part) -> cycles of the operations between its starts
      and their dones, of all of its runs together.
    loops: the loops of unknown length.
  """

  cycles: dict[str, float] = _counts()
  launches: float = 0.0
  kernels: dict[tuple[Kernel, str], float] = _counts()
  collectives: dict[tuple[Collective, str], float] = _counts()
  hidden: dict[tuple[Collective, str], float] = _counts()
  loops: list["Loop"] = dataclasses.field(default_factory=list)

  @property
  def total_cycles(self) -> float:
    """Cycles of all parts; loops of unknown length are left out."""
    return sum(self.cycles.values())

  def add(self, other: "Cost", times: float = 1.0) -> None:
    """Adds another cost, so many times."""
    self.launches += times * other.launches
    pairs: list[tuple[dict[Any, float], dict[Any, float]]] = [
      (self.cycles, other.cycles),
      (self.kernels, other.kernels),
      (self.collectives, other.collectives),
      (self.hidden, other.hidden),
    ]
    for mine, theirs in pairs:
      for key, value in theirs.items():
        mine[key] += times * value
    self.loops += [
      dataclasses.replace(loop, times=times * loop.times)
      for loop in other.loops
    ]

  def at(self, trip_counts: Mapping[str, float]) -> "Cost":
    """Returns the cost with the loops of unknown length multiplied out.

    Args:
      trip_counts: name of a loop -> its iterations; one that is not in it
        counts once.
    """
    total = Cost()
    total.add(dataclasses.replace(self, loops=[]))
    for loop in self.loops:
      total.add(
        loop.body.at(trip_counts), loop.times * trip_counts.get(loop.name, 1.0)
      )
    return total

  def iteration(self, name: str) -> "Cost":
    """Returns one iteration of the loops of a name, wherever they stand.

    A loop that is begun in each of 28 layers counts 28 times. Loops within it
    stay as they are.
    """
    found = Cost()
    for loop in self.loops:
      inner = loop.body if loop.name == name else loop.body.iteration(name)
      found.add(inner, loop.times)
    return found

  def loop_names(self) -> list[str]:
    """Returns the names of the loops of unknown length, outermost first."""
    names = [loop.name for loop in self.loops]
    for loop in self.loops:
      names += loop.body.loop_names()
    return list(dict.fromkeys(names))


@dataclasses.dataclass(frozen=True)
class Loop:
  """A loop whose length the compiler does not know.

  Attributes:
    name: what an iteration of it is; see `loop_name`.
    times: how often it is begun in one run of what contains it.
    max_trip_count: bound of its length, if the compiler knows one.
    body: the cost of one iteration, its condition included.
  """

  name: str
  times: float
  max_trip_count: int | None
  body: Cost


def loop_name(op_name: str) -> str:
  """Returns what an iteration of a loop of unknown length is.

  Attention's loop reads a page of each row. The outermost one of a decode goes
  over tokens, and of an update over micro-batches; a critic's goes over
  optimizer steps, and the one within it over micro-batches.

  Args:
    op_name: the path of names of the loop.
  """
  if "cache_write" in op_name:
    return WRITTEN_PAGE
  if "/attention/" in op_name:
    return PAGE
  function = op_name.removeprefix("jit(").partition(")")[0]
  names = _LOOPS.get(function, ("iteration",))
  depth = op_name.split("/").count("while")
  return names[min(max(depth, 1), len(names)) - 1]


def cost(program: Program) -> Cost:
  """Returns the cost of a program.

  The branch of a conditional with the most cycles counts, as if the hottest
  device ran alone.
  """
  return _Reader(program).computation(program.entry, None)


class _Reader:
  """Adds up the operations of a program's computations."""

  def __init__(self, program: Program):
    self._program = program
    self._finder = Finder(program)
    self._known: dict[tuple[str, str | None], Cost] = {}

  def computation(self, name: str, outer: str | None) -> Cost:
    """Returns the cost of a computation.

    Args:
      name: the computation's.
      outer: name of the loop of unknown length that it is in, if any.
    """
    if (name, outer) in self._known:
      return self._known[name, outer]
    total = Cost()
    # Start of a collective, or its channel -> its key, and the cycles so far.
    begun: dict[str, tuple[tuple[Collective, str], float]] = {}
    for op in self._program.computations.get(name, ()):
      if op.kind == "while":
        self._add_loop(op, outer, total)
      elif op.kind == "conditional":
        branches = [
          self.computation(branch, outer)
          for names in op.called.values()
          for branch in names
        ]
        total.add(max(branches, key=_weight))
      elif op.kind == "call":
        (called,) = op.called["to_apply"]
        inner = self.computation(called, outer)
        if called.startswith(_COMMAND_BUFFER):
          inner = dataclasses.replace(inner, launches=1.0)
        total.add(inner)
      elif op.kind not in _FREE:
        self._add_operation(op, begun, total)
    self._known[name, outer] = total
    return total

  def _add_loop(self, op: Operation, outer: str | None, total: Cost) -> None:
    """Adds a loop, multiplied out or by itself."""
    trip_count = hlo.trip_count(self._program, op)
    times = trip_count.known
    if times is None and f"/{LOGITS}/" in op.op_name:
      times = trip_count.maximum  # Every token may be in the loss.
    name = outer if times is not None else loop_name(op.op_name)
    iteration = Cost()
    for role in ("body", "condition"):
      iteration.add(self.computation(op.called[role][0], name))
    if times is not None:
      total.add(iteration, times)
    else:
      total.loops.append(Loop(str(name), 1.0, trip_count.maximum, iteration))

  def _add_operation(
    self,
    op: Operation,
    begun: dict[str, tuple[tuple[Collective, str], float]],
    total: Cost,
  ) -> None:
    """Adds one operation.

    Args:
      op: the operation.
      begun: collectives that have started and are not done; changed.
      total: the cost so far of the computation; changed.
    """
    if collectives.ends(self._program, op):
      for name in (collectives.channel(self._program, op), *op.operands[:1]):
        if name in begun:
          key, before = begun.pop(name)
          total.hidden[key] += total.at({}).total_cycles - before
      return
    if any(word in op.attributes for word in _ANNOTATIONS):
      return
    total.launches += 1
    part = self._finder.part(op)
    if (moved := collectives.collective(self._program, op)) is not None:
      total.collectives[moved, part] += 1
      if moved.asynchronous:
        channel = collectives.channel(self._program, op)
        name = op.name if op.kind != "fusion" else channel
        begun[name] = (moved, part), total.at({}).total_cycles
    elif (kernel := kernels.kernel(self._program, op)) is not None:
      if kernel.is_per_page:
        page = Cost()
        page.kernels[kernel, part] += 1
        total.loops.append(Loop(PAGE, 1.0, None, page))
      else:
        total.kernels[kernel, part] += 1
    elif op.cycles:
      total.cycles[part] += op.cycles


def _weight(branch: Cost) -> tuple[float, float]:
  """Returns what the hottest branch has most of."""
  whole = branch.at({})
  return whole.total_cycles, whole.launches
