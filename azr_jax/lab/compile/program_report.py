"""The report of one compiled program: time, floor, and where the time goes.

All seconds are for one device. Cycles are the compiler's estimate. It has none
for kernels and collectives, so we estimate these: a kernel from its FLOPs and
bytes at data-sheet rates, a collective from its bytes around a ring at the
combined bandwidth of all links.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from azr_jax.lab.compile import collectives, cost, parts
from azr_jax.lab.compile.compiled import Compiled
from azr_jax.lab.compile.cost import Cost
from azr_jax.parallel import chips
from azr_jax.parallel.chips import Chip


def program_report(
  program: Compiled,
  chip: Chip,
  floors: Mapping[str, float],
  token_floors: Mapping[str, float],
  trip_counts: Mapping[str, float],
) -> dict[str, Any]:
  """Returns the figures of a program, as JSON values.

  Args:
    program: the compiled program.
    chip: the device type.
    floors: part of the model -> minimum seconds of a call.
    token_floors: part of the model -> minimum seconds of a decoded token of
      all slots.
    trip_counts: loop of unknown length -> assumed iterations.
  """
  names = program.cost.loop_names()
  report: dict[str, Any] = time_report(
    program.cost.at(trip_counts), chip, floors
  )
  loops = {}
  for name in names:
    at = trip_counts if name == cost.TOKEN else {}
    loops[name] = {"assumed": trip_counts.get(name, 1.0)} | time_report(
      program.cost.iteration(name).at(at),
      chip,
      token_floors if name == cost.TOKEN else {},
    )
  if cost.TOKEN in names:
    once = dict(trip_counts) | {cost.TOKEN: 0.0}
    report["once"] = time_report(program.cost.at(once), chip, {})
  return report | {
    "loops": loops,
    "large_results": [dataclasses.asdict(one) for one in program.large],
    "scratch_bytes": program.scratch_bytes,
    "program_bytes": program.program_bytes,
    "resident_bytes": program.resident_bytes,
    "hbm_bytes": program.peak_bytes,
    "hbm_gib": program.peak_bytes / chips.GIB,
    "flops": program.flops,
    "bytes": program.bytes,
    "compile_s": program.compile_s,
    "error": program.error,
  }


def time_report(
  whole: Cost, chip: Chip, floors: Mapping[str, float]
) -> dict[str, Any]:
  """Returns a cost's cycles, seconds and floors, with kernels and collectives.

  Args:
    whole: the cost. Loops of unknown length must already be multiplied out;
      any left are ignored.
    chip: the device type.
    floors: part of the model -> minimum seconds.
  """
  clock = chip.clock_hz
  cycles = whole.total_cycles
  seconds = cycles / clock if clock else None
  kernels = _kernels(whole, chip)
  kernel_s = sum(kernel["seconds"] for kernel in kernels)
  moved = _collectives(whole, chip)
  exposed_s = sum(one["exposed_seconds"] for one in moved)
  total_s = None if seconds is None else seconds + kernel_s + exposed_s
  floor_s = sum(floors.values())
  return {
    "cycles": cycles if clock else None,
    "seconds": seconds,
    "kernel_seconds": kernel_s,
    "collective_seconds": exposed_s,
    "total_seconds": total_s,
    "floor_seconds": floor_s,
    "ratio": _ratio(total_s, floor_s),
    "launches": whole.launches,
    "moved_bytes": whole.bytes,
    "parts": _parts(whole, chip, floors),
    "kernels": kernels,
    "collectives": moved,
  }


def _ratio(seconds: float | None, floor_s: float) -> float | None:
  return seconds / floor_s if seconds is not None and floor_s else None


def _parts(
  whole: Cost, chip: Chip, floors: Mapping[str, float]
) -> dict[str, dict[str, float | None]]:
  """Returns the time of each part of the model, kernels included."""
  found = {}
  for part in parts.PARTS:
    cycles = whole.cycles.get(part, 0.0)
    kernel_s = sum(
      count * kernel.seconds(chip)
      for (kernel, of), count in whole.kernels.items()
      if of == part
    )
    floor_s = floors.get(part, 0.0)
    if not (cycles or kernel_s or floor_s):
      continue
    seconds = cycles / chip.clock_hz + kernel_s if chip.clock_hz else None
    found[part] = {
      "cycles": cycles if chip.clock_hz else None,
      "seconds": seconds,
      "kernel_seconds": kernel_s,
      "floor_seconds": floor_s,
      "ratio": _ratio(seconds, floor_s),
    }
  return found


def _kernels(whole: Cost, chip: Chip) -> list[dict[str, Any]]:
  """Returns the kernels, with their seconds at data-sheet rates."""
  return [
    {
      "name": kernel.name,
      "part": part,
      "count": count,
      "flops": kernel.flops,
      "bytes": kernel.bytes,
      "seconds": count * kernel.seconds(chip),
    }
    for (kernel, part), count in whole.kernels.items()
  ]


def _collectives(whole: Cost, chip: Chip) -> list[dict[str, Any]]:
  """Returns the collectives of each kind and size, longest first.

  A synchronous collective is exposed for its whole duration, an asynchronous
  one for the part that the operations between its start and end do not hide.
  """
  found = []
  sizes: dict[collectives.Collective, tuple[float, float]] = {}
  for (one, part), count in whole.collectives.items():
    counted, hidden = sizes.get(one, (0.0, 0.0))
    hidden += whole.hidden.get((one, part), 0.0)
    sizes[one] = counted + count, hidden
  for one, (count, hidden) in sizes.items():
    seconds = count * one.sent_bytes / chip.link_bandwidth
    hidden_s = hidden / chip.clock_hz if chip.clock_hz else 0.0
    exposed_s = max(0.0, seconds - hidden_s) if one.asynchronous else seconds
    found.append(
      dataclasses.asdict(one)
      | {
        "count": count,
        "sent_bytes": count * one.sent_bytes,
        "seconds": seconds,
        "exposed_seconds": exposed_s,
      }
    )
  return sorted(found, key=lambda one: -one["seconds"])
