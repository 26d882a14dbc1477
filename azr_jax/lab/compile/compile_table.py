"""Prints the report of `compile_report` as tables of at most 100 columns."""

import textwrap
from collections.abc import Iterator
from typing import Any

from azr_jax.lab.compile import (
  compiled_costs,
  cost,
  parts,
  sampler_forecast,
)
from azr_jax.parallel import chips

_COLUMNS = 100
# Large results listed per program; the count covers all of them.
_MAX_LISTED = 3
# Programs whose parts are listed. Startup programs run once, so they are not.
_STEP_PROGRAMS = (
  *("weights", "prefill", "decode", "score", "estimate", "critic", "prepare"),
  "update",
)

_LARGER_MESH = "a larger mesh.fsdp (more chips)"
# Program -> the keys to change if it does not fit.
_SUGGESTIONS = {
  "start_copy": _LARGER_MESH,
  "start_critic": _LARGER_MESH,
  "start_policy": _LARGER_MESH,
  "restore": _LARGER_MESH,
  "weights": "a smaller rollout.cache_gib, a larger rollout.mesh.tensor, or "
  "a larger mesh.fsdp",
  "prefill": "fewer rollout.prefill_tokens, a smaller rollout.cache_gib, or a "
  "larger rollout.mesh.tensor",
  "decode": "a smaller rollout.cache_gib, a larger rollout.mesh.tensor, or a "
  "larger mesh.fsdp",
  "score": "smaller learner.chunk_tokens or learner.micro_rows, or a larger "
  "mesh.fsdp",
  "estimate": "smaller learner.micro_rows, or a larger mesh.fsdp",
  "prepare": "smaller learner.micro_rows or learner.chunk_tokens, or a larger "
  "mesh.fsdp",
  "critic": "a larger mesh.fsdp (more chips), smaller learner.micro_rows, or "
  "model.remat='full'",
  "update": "a larger mesh.fsdp (more chips), smaller learner.micro_rows or "
  "learner.chunk_tokens, or model.remat='full'",
}


def show(report: dict[str, Any]) -> str:
  """Formats a report of `compile_report.compile_check`."""
  head = _wrapped(
    f"{report['topology']}: {report['devices']} devices of "
    f"{report['hbm_gib']:.0f} GiB, mesh {report['mesh']}, sampling on "
    f"{report['rollout_mesh']}"
  )
  lines = [*head, "", *_programs(report), "", *_parts(report), ""]
  lines += _collectives(report)
  lines += _kernels(report)
  lines += _large(report)
  lines += ["", *_forecast(report), *_estimate(report)]
  return "\n".join(lines)


def seconds(value: float | None) -> str:
  """Formats seconds; None becomes a dash."""
  if value is None:
    return "-"
  if value >= 1 or value == 0:
    return f"{value:.3g} s"
  if value >= 1e-3:
    return f"{value * 1e3:.3g} ms"
  return f"{value * 1e6:.3g} us" if value >= 1e-8 else "0 s"


def _wrapped(text: str) -> list[str]:
  """Wraps prose to the width of the tables."""
  return textwrap.wrap(text, _COLUMNS)


def _rows(report: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
  """Yields the programs; decode also per token and once per call."""
  for name, program in report["programs"].items():
    yield name, program
    if token := program["loops"].get(cost.TOKEN):
      yield "  a token", token
      yield "  once a call", program["once"]


def _programs(report: dict[str, Any]) -> Iterator[str]:
  """Yields the table of programs."""
  is_gpu = not report["clock_hz"]
  yield (
    f"{'program':14}{'M cycles':>9}{'compiler':>10}{'kernels':>9}{'links':>9}"
    f"{'floor':>9}{'ratio':>6}{'HBM GiB':>8}{'scratch':>8}"
    + (f"{'launches':>9}" if is_gpu else f"{'compile':>9}")
  )
  for name, row in _rows(report):
    if row.get("error"):
      yield f"{name:14} does not compile: {row['error']}"[:_COLUMNS]
      continue
    millions = row["cycles"] / 1e6 if row["cycles"] is not None else None
    line = f"{name:14}" + (
      f"{millions:9,.4g}" if millions is not None else f"{'-':>9}"
    )
    line += f"{seconds(row['seconds']):>10}{seconds(row['kernel_seconds']):>9}"
    line += f"{seconds(row['collective_seconds']):>9}"
    line += f"{seconds(row['floor_seconds'] or None):>9}"
    line += f"{row['ratio']:6.1f}" if row["ratio"] else f"{'-':>6}"
    if "hbm_gib" in row:
      scratch = row["scratch_bytes"] / chips.GIB
      line += f"{row['hbm_gib']:8.3g}{round(scratch, 4):8.3g}"
      if not is_gpu:
        line += f"{row['compile_s']:7.0f} s"
    else:
      line += " " * 16
    if is_gpu:
      line += f"{row['launches']:9,.0f}"
    yield line + ("" if row.get("fits", True) else "  DOES NOT FIT")
  estimate = "compiler: the TPU compiler's own estimate; "
  if is_gpu:
    estimate = "launches: operations that the host gives a device one by one; "
  yield from _wrapped(
    f"Per device. {estimate}kernels and links (unless known to be hidden): "
    "computed at data-sheet rates; floor: the minimum of computing and reading "
    "that is needed"
  )
  yield from _wrapped(f"Loops that depend on data: {_trip_counts(report)}")


def _trip_counts(report: dict[str, Any]) -> str:
  """Returns the assumed trip counts of loops of unknown length."""
  return "; ".join(
    f"{name} {trip_counts[loop]:.0f} {loop.replace('_', ' ')}(s)"
    for name, program in report["programs"].items()
    if (trip_counts := report["assumed_trip_counts"].get(name))
    for loop in program["loops"]
    if loop in trip_counts
  )


def _parts(report: dict[str, Any]) -> Iterator[str]:
  """Yields cycles per part of the model, for the programs of a step."""
  if not report["clock_hz"]:
    return
  columns = {
    name: program["loops"].get(cost.TOKEN, program)
    for name, program in report["programs"].items()
    if name in _STEP_PROGRAMS and not program["error"]
  }
  titles = {
    name: "decode token"
    if cost.TOKEN in report["programs"][name]["loops"]
    else name
    for name in columns
  }
  yield f"{'M cycles, ratio':15}" + "".join(
    f"{titles[name]:>14}" for name in columns
  )
  for part in parts.PARTS:
    cells = [column["parts"].get(part) for column in columns.values()]
    if not any(cells):
      continue
    yield f"{part:15}" + "".join(f"{_cell(cell):>14}" for cell in cells)


def _cell(part: dict[str, Any] | None) -> str:
  """Formats cycles, a mark for kernels, and the ratio to the floor."""
  if part is None:
    return "-"
  text = f"{part['cycles'] / 1e6:,.4g}"
  if part["kernel_seconds"]:
    text += "+K"
  return text + (f" {part['ratio']:5.1f}" if part["ratio"] else f" {'-':>5}")


def _collectives(report: dict[str, Any]) -> Iterator[str]:
  """Yields a line per program and kind of collective."""
  yield "collectives: count, size of results, asynchronous, time, not hidden"
  for name, row in _rows(report):
    if name == "  once a call" or row.get("error"):
      continue
    kinds: dict[str, list[float]] = {}
    for one in row["collectives"]:
      sums = kinds.setdefault(one["kind"], [0.0] * 5)
      count = one["count"]
      for index, value in enumerate(
        (
          count,
          count * one["bytes"] / 1e9,
          count * one["asynchronous"],
          one["seconds"],
          one["exposed_seconds"],
        )
      ):
        sums[index] += value
    for kind, (count, size, num_async, all_s, exposed_s) in kinds.items():
      yield (
        f"  {name.strip():14}{kind:20}{count:9,.0f}{size:10.3g} GB"
        f"{num_async:9,.0f} async{seconds(all_s):>10}{seconds(exposed_s):>10}"
      )


def _kernels(report: dict[str, Any]) -> Iterator[str]:
  """Yields a line per program and kernel."""
  found = [
    f"  {name.strip():14}{kernel['name'][:40]:42}{kernel['count']:8,.0f}"
    f"{seconds(kernel['seconds']):>10}  {kernel['part']}"
    for name, row in _rows(report)
    if not row.get("error") and name != "  once a call"
    for kernel in row["kernels"]
  ]
  if found:
    yield "kernels: count, time at the data sheet's rates, part"
    yield from found


def _large(report: dict[str, Any]) -> Iterator[str]:
  """Yields the largest results outside kernels."""
  for name, program in report["programs"].items():
    found = program["large_results"]
    if not found:
      continue
    yield f"{name}: {len(found)} results as large as the cache or [S, S]"
    for one in found[:_MAX_LISTED]:
      where = one["op_name"] or one["name"]
      line = f"  {one['bytes'] / chips.GIB:.2f} GiB {one['shape']} {where}"
      yield line[:_COLUMNS]


def _forecast(report: dict[str, Any]) -> Iterator[str]:
  """Yields the forecast of a step and its assumptions."""
  for name, forecast in report.get("forecasts", {}).items():
    yield from _one_forecast(name, forecast)
  if "forecasts" in report:
    latency_us = compiled_costs.COLLECTIVE_LATENCY_S * 1e6
    yield from _wrapped(
      "A lower bound: the compiler's cycles, kernels and links at data-sheet "
      f"rates, {latency_us:.0f} us per collective, "
      f"{compiled_costs.HOST_CALL_S * 1e3:.0f} ms and "
      f"{sampler_forecast.HOST_SLOT_S * 1e6:.0f} us per slot for the host in a "
      f"decode call, {compiled_costs.EXCHANGE_S * 1e3:.0f} ms per exchange of "
      "verdicts between hosts, no time for grading, equal prompts. Published "
      f"runs took {compiled_costs.DECODE_FACTOR} times the decode forecast "
      f"and {compiled_costs.UPDATE_FACTOR} times the update's"
    )


def _one_forecast(name: str, f: dict[str, Any]) -> Iterator[str]:
  """Yields the forecast of a step for one distribution of lengths."""
  yield from _wrapped(
    f"Forecast at {name}: {_spread(f['step_s'])} s a step = sampling "
    f"{_spread(f['sample_s'])} (prefill {f['prefill_s']:.2g}, decode "
    f"{f['decode_s']:.3g}: {f['decode_calls']:.0f} calls, "
    f"{f['decode_steps']:,.0f} tokens of a slot, slots busy "
    f"{f['slots_busy']:.0%}; host {f['host_s']:.2g}) + update "
    f"{_spread(f['update_s'])} ({f['rows']:.0f} rows, "
    f"{f['micro_batches']:.3g} micro-batches) + weights {f['params_s']:.2g}; "
    + ", ".join(
      f"{_spread(step)} with rollout.max_staleness={staleness}"
      for staleness, step in f["ahead_step_s"].items()
    )
    + f". Mean {f['mean_tokens']:.0f}, longest {f['longest_tokens']:.0f} "
    f"tokens. Means of {f['draws']} steps +- the deviation of one step, in "
    "brackets the standard error of the mean."
  )


def _spread(found: dict[str, float]) -> str:
  """Formats a mean, with deviation and error unless they are negligible."""
  mean, deviation = found["mean"], found["deviation"]
  if deviation < 0.005 * mean:
    return f"{mean:.3g}"
  return f"{mean:.3g} +- {deviation:.2g} [{found['error']:.2g}]"


def _estimate(report: dict[str, Any]) -> Iterator[str]:
  """Yields a step's roofline, and what to change if it does not fit."""
  e, a = report["estimate"], report["assumed"]
  update = report["programs"].get("update")
  links = "" if update and update["fits"] else ", links not counted"
  critic = f" + critic {e['critic_s']:.2g}" if e["critic_s"] else ""
  yield from _wrapped(
    f"At best: {e['step_s']:.3g} s a step = prefill {e['prefill_s']:.2g} + "
    f"decode {e['decode_s']:.3g} + update {e['update_s']:.2g}{critic}; "
    f"decode {e['decode_tokens_per_s']:,.0f} tokens/s; update "
    f"{e['update_tokens_per_s']:,.0f} tokens/s, {e['update_mfu']:.0%} of the "
    f"matrix units, bound by {e['update_bound']}{links}. Assumed: "
    f"{a['sequences']} completions of {a['new_tokens']:.0f} tokens to "
    f"{a['prompts']} prompts of {a['prompt_tokens']:.0f}, {a['trained']} "
    "trained on; data-sheet rates, transfers hidden, slots always full, no "
    "time for the host or for grading"
  )
  yield from _wrapped(report["rows_advice"])
  for name, program in report["programs"].items():
    if not program["fits"] and not program["error"]:
      is_sized = name.startswith(("prefill", "decode"))
      kind = name.partition("_")[0] if is_sized else name
      yield f"{name} does not fit: try {_SUGGESTIONS[kind]}"
