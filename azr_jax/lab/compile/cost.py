"""The cost of a compiled program: its operations, with loops multiplied out.

The TPU compiler annotates every operation with estimated cycles, except
collectives and the insides of kernels, which are listed separately. A loop
whose trip count the compiler does not know keeps its own cost, so that a
caller can say how often it runs.
"""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

from azr_jax.lab.compile import collectives, hlo, kernels
from azr_jax.lab.compile.collectives import Collective
from azr_jax.lab.compile.hlo import Module, Operation
from azr_jax.lab.compile.kernels import Kernel
from azr_jax.lab.compile.parts import LOGITS, Finder
from azr_jax.lab.compile.traffic import Traffic

# Operations that take no device time of their own.
_FREE = frozenset(
  (
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast"),
    *("partition-id", "replica-id", "after-all", "opt-barrier", "domain"),
    *("async-update", "add-dependency"),
  )
)
# Custom calls that only annotate the program for the compiler.
_ANNOTATIONS = (
  *("AllocateBuffer", "AssumeGatherIndicesInBound", "ZeroCrop"),
  *("GatherScatterIndicesBitpacked", "PrepareAsyncCall"),
)
# A computation that is launched on a GPU as one graph.
_COMMAND_BUFFER = "command_buffer"
# Names of loops of unknown length; each iteration handles one of these.
TOKEN, MICRO_BATCH = "token", "micro_batch"
# An optimizer step on a minibatch; it contains a loop over micro-batches.
OPTIMIZER_STEP = "optimizer_step"
# A page that attention reads, and a page that is written.
PAGE, WRITTEN_PAGE = "page", "written_page"
# Compiled function -> its loops of unknown length, outermost first.
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
  """The cost of a program, or of one loop iteration, on one device.

  Attributes:
    cycles: part of the model -> cycles, as estimated by the compiler.
    launches: operations that are launched one by one.
    bytes: bytes that operations read and write, kernels included.
    kernels: (kernel, part) -> number of runs.
    collectives: (collective, part) -> number of runs.
    hidden: (collective, part) -> cycles of the operations between start and
      done, summed over all runs.
    loops: the loops of unknown length.
  """

  cycles: dict[str, float] = _counts()
  launches: float = 0.0
  bytes: float = 0.0
  kernels: dict[tuple[Kernel, str], float] = _counts()
  collectives: dict[tuple[Collective, str], float] = _counts()
  hidden: dict[tuple[Collective, str], float] = _counts()
  loops: list["Loop"] = dataclasses.field(default_factory=list)

  @property
  def total_cycles(self) -> float:
    """Cycles of all parts, without loops of unknown length."""
    return sum(self.cycles.values())

  def add(self, other: "Cost", times: float = 1.0) -> None:
    """Adds another cost, multiplied by `times`."""
    self.launches += times * other.launches
    self.bytes += times * other.bytes
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
      trip_counts: loop name -> iterations. A missing loop counts once.
    """
    total = Cost()
    total.add(dataclasses.replace(self, loops=[]))
    for loop in self.loops:
      total.add(
        loop.body.at(trip_counts), loop.times * trip_counts.get(loop.name, 1.0)
      )
    return total

  def iteration(self, name: str) -> "Cost":
    """Returns the cost of one iteration of the loops with this name.

    A loop that runs in each of 28 layers counts 28 times. Loops nested inside
    it stay loops.
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
    name: the unit that one iteration handles; see `loop_name`.
    times: how often the loop is entered per run of the code that contains it.
    max_trip_count: upper bound of its length, or None if unknown.
    body: the cost of one iteration, including the condition.
  """

  name: str
  times: float
  max_trip_count: int | None
  body: Cost


def loop_name(op_name: str) -> str:
  """Returns the unit that one iteration of a loop handles, such as a token.

  Attention's loop reads a page of each row. The outermost loop of a decode is
  over tokens, and that of an update over micro-batches. A critic's outermost
  loop is over optimizer steps, and the one inside it over micro-batches.

  Args:
    op_name: the loop's name path in JAX's program.
  """
  if "cache_write" in op_name:
    return WRITTEN_PAGE
  if "/attention/" in op_name:
    return PAGE
  function = op_name.removeprefix("jit(").partition(")")[0]
  names = _LOOPS.get(function, ("iteration",))
  depth = op_name.split("/").count("while")
  return names[min(max(depth, 1), len(names)) - 1]


def cost(program: Module) -> Cost:
  """Returns the cost of a program.

  Of a conditional, the branch with the most cycles counts, so the result is
  the cost on the busiest device.
  """
  return _Reader(program).computation(program.entry, None)


class _Reader:
  """Adds up the operations of a program's computations."""

  def __init__(self, program: Module):
    self._program = program
    self._finder = Finder(program)
    self._traffic = Traffic(program)
    self._known: dict[tuple[str, str | None], Cost] = {}

  def computation(self, name: str, outer: str | None) -> Cost:
    """Returns the cost of a computation.

    Args:
      name: name of the computation.
      outer: name of the enclosing loop of unknown length, or None.
    """
    if (name, outer) in self._known:
      return self._known[name, outer]
    total = Cost()
    # Name or channel of a started collective -> its key, and cycles at start.
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
    """Adds a loop: multiplied out if its length is known, else as a loop."""
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
      begun: collectives that are in flight; updated in place.
      total: the computation's cost so far; updated in place.
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
    total.bytes += self._traffic.bytes(op)
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
  """Returns the key by which the most expensive branch is chosen."""
  whole = branch.at({})
  return whole.total_cycles, whole.launches
