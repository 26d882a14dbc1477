"""Counts the collectives in the text of a compiled program, by kind."""

import dataclasses
import math
import re

KINDS = (
  "all-gather",
  "all-reduce",
  "reduce-scatter",
  "all-to-all",
  "collective-permute",
)
# Bytes of an element, by the type's name.
_ELEMENT_BYTES = {
  "pred": 1,
  "s8": 1,
  "u8": 1,
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
_SHAPE = re.compile(r"\b(\w+)\[([\d,]*)\]")
_OPERATION = re.compile(r"= (.*?) ([a-z][\w\-]*)\(")
_CALLED = re.compile(
  r"(?:calls|to_apply|body|called_computations|branch_computations)="
  r"(?:\{([^}]*)\}|%?([\w.\-]+))"
)
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_KNOWN_TRIPS = re.compile(r'known_trip_count"?:\s*\{"?n"?:\s*"?(\d+)')
_BOUND = re.compile(r"constant\((\d+)\)")


@dataclasses.dataclass
class Collective:
  """The collectives of one kind in a program.

  Attributes:
    count: how often they run; those in a loop of known length count once per
      iteration.
    bytes: total size of their results on one device.
  """

  count: int = 0
  bytes: float = 0.0


def collectives(text: str) -> dict[str, Collective]:
  """Counts a program's collectives.

  A loop whose length the compiler does not know, such as the decode loop,
  counts as one iteration.

  Args:
    text: `compiled.as_text()`.

  Returns:
    The collectives by kind; kinds that the program does not have are left out.
  """
  computations, entry = _computations(text)
  totals = {kind: Collective() for kind in KINDS}

  def walk(name: str, times: int) -> None:
    for line in computations.get(name, ()):
      operation = _OPERATION.search(line)
      if operation is None:
        continue
      shapes, kind = operation.groups()
      started = kind.endswith("-start")
      kind = kind.removesuffix("-start")
      if kind in totals:
        totals[kind].count += times
        has_operands = started and kind != "all-reduce"
        totals[kind].bytes += times * _bytes(shapes, has_operands)
      inner = times * (_trips(line, computations) if kind == "while" else 1)
      for group, single in _CALLED.findall(line):
        for called in (group or single).split(","):
          walk(called.strip().lstrip("%"), inner)

  walk(entry, 1)
  return {kind: total for kind, total in totals.items() if total.count}


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
  """Returns the lines of each computation, and the name of the entry."""
  computations: dict[str, list[str]] = {}
  entry, current = "", None
  for line in text.splitlines():
    header = _COMPUTATION.match(line)
    if header and not line.startswith(" "):
      current = header.group(2)
      computations[current] = []
      entry = current if header.group(1) else entry
    elif current is not None:
      computations[current].append(line)
  return computations, entry


def _trips(line: str, computations: dict[str, list[str]]) -> int:
  """Returns how often a loop runs.

  It is the compiler's known trip count, or the only constant of a condition
  with one comparison; 1 if there is neither.
  """
  if known := _KNOWN_TRIPS.search(line):
    return int(known.group(1))
  condition = _CONDITION.search(line)
  lines = computations.get(condition.group(1), []) if condition else []
  bounds = [int(n) for text in lines for n in _BOUND.findall(text)]
  simple = sum(" compare(" in text for text in lines) == 1
  return bounds[0] if simple and len(bounds) == 1 else 1


def _bytes(shapes: str, has_operands: bool) -> float:
  """Returns the bytes of an operation's result.

  Args:
    shapes: the types of the result, as text.
    has_operands: whether the operands' types stand before the results', as
      they do for an asynchronous start.
  """
  sizes = [
    _ELEMENT_BYTES.get(kind, 4)
    * math.prod(int(n) for n in dims.split(",") if n)
    for kind, dims in _SHAPE.findall(shapes)
    # A start may also carry scalars, which are neither.
    if dims or not has_operands
  ]
  return float(sum(sizes[len(sizes) // 2 :] if has_operands else sizes))
