"""Reads compiled programs' text: collectives by kind, with their sizes."""

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
_WIDTHS = {
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
  """What a program does of one kind.

  Attributes:
    count: how often, loops of known length multiplied out.
    bytes: of their results on one device, in all.
  """

  count: int = 0
  bytes: float = 0.0


def collectives(text: str) -> dict[str, Collective]:
  """Sums up a program's collectives.

  A loop whose length the compiler does not know, as that of decoding, counts
  once: what is found is then per iteration.

  Args:
    text: `compiled.as_text()`.
  """
  computations, entry = _computations(text)
  found = {kind: Collective() for kind in KINDS}

  def walk(name: str, times: int) -> None:
    for line in computations.get(name, ()):
      operation = _OPERATION.search(line)
      if operation is None:
        continue
      shapes, kind = operation.groups()
      started = kind.endswith("-start")
      kind = kind.removesuffix("-start")
      if kind in found:
        found[kind].count += times
        operands = started and kind != "all-reduce"
        found[kind].bytes += times * _bytes(shapes, operands)
      inner = times * (_trips(line, computations) if kind == "while" else 1)
      for group, single in _CALLED.findall(line):
        for called in (group or single).split(","):
          walk(called.strip().lstrip("%"), inner)

  walk(entry, 1)
  return {kind: total for kind, total in found.items() if total.count}


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
  """The lines of each computation, and the entry's name."""
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
  """How often a loop runs, by its note or its condition's only bound.

  1 if the loop has no note and its condition more than one comparison.
  """
  if known := _KNOWN_TRIPS.search(line):
    return int(known.group(1))
  condition = _CONDITION.search(line)
  lines = computations.get(condition.group(1), []) if condition else []
  bounds = [int(n) for text in lines for n in _BOUND.findall(text)]
  simple = sum(" compare(" in text for text in lines) == 1
  return bounds[0] if simple and len(bounds) == 1 else 1


def _bytes(shapes: str, operands: bool) -> float:
  """Bytes of a result; a start's operands, which stand first, left out."""
  sizes = [
    _WIDTHS.get(kind, 4) * math.prod(int(n) for n in dims.split(",") if n)
    for kind, dims in _SHAPE.findall(shapes)
    if dims or not operands  # A start may carry scalars of its own.
  ]
  return float(sum(sizes[len(sizes) // 2 :] if operands else sizes))
