"""Tables of the measurements of `benchmark gpu`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from azr_jax.lab.bench.case_runs import ERROR, Row
from azr_jax.lab.bench.gpu_plan import OURS, TORCH, Case

_HEAD = (
  "case",
  f"{OURS}, ms",
  f"{TORCH}, ms",
  "ratio",
  f"{OURS}, %",
  f"{TORCH}, %",
  "compile, s",
  "how",
)


def show(cases: Sequence[Case], rows: Mapping[str, Row]) -> str:
  """Returns Markdown tables of the cases that have a result.

  Args:
    cases: the cases, in order.
    rows: results by `Case.key`, from `case_runs.read`.
  """
  good = {key: row for key, row in rows.items() if ERROR not in row}
  rates = next(
    (row["peak_rates"] for row in good.values() if "peak_rates" in row), None
  )
  lines = [*_about(good, rates), ""]
  named: dict[str, dict[str, Case]] = {}
  for case in cases:
    if case.seconds_key:
      named.setdefault(case.name, {})[case.side] = case
  body = [_line(name, sides, good, rates) for name, sides in named.items()]
  body = [line for line in body if line[1] or line[2]]
  if body:
    lines += [*_markdown(_HEAD, body), ""]
  return "\n".join([*lines, *_kernels(good)]).strip()


def _about(rows: Mapping[str, Row], rates: Row | None) -> list[str]:
  """Returns lines about the device, its rates and the versions."""
  lines = []
  if rates is not None:
    lines.append(
      f"{rates['device']}, {rates['source']}: {rates['flops'] / 1e12:.4g} "
      f"TFLOP/s, {rates['bandwidth'] / 1e12:.3g} TB/s"
    )
  if (peak := rows.get(f"peak, {OURS}")) is not None:
    lines.append(
      f"measured with jax {peak['jax']}: product "
      f"{peak['product_flops'] / 1e12:.4g} TFLOP/s, copy "
      f"{peak['copy_bandwidth'] / 1e12:.3g} TB/s"
    )
  versions = {row["torch"] for row in rows.values() if "torch" in row}
  return lines + [f"torch {version}" for version in sorted(versions)]


def _line(
  name: str,
  sides: Mapping[str, Case],
  rows: Mapping[str, Row],
  rates: Row | None,
) -> list[str]:
  """Returns the cells of a case; "" where nothing was measured."""
  found = {
    side: rows[case.key] for side, case in sides.items() if case.key in rows
  }
  seconds = {side: row[sides[side].seconds_key] for side, row in found.items()}

  def percent(side: str) -> str:
    if side not in seconds or rates is None:
      return ""
    case = sides[side]
    return f"{100 * case.least / rates[case.rate] / seconds[side]:.1f}"

  ratio = ""
  if len(seconds) == len((OURS, TORCH)):
    ratio = f"{seconds[TORCH] / seconds[OURS]:.2f}"
  compile_s = [
    f"{found[side]['compile_s']:.0f}"
    for side in (OURS, TORCH)
    if "compile_s" in found.get(side, {})
  ]
  ours = found.get(OURS, {})
  how = [f"{key} {ours[key]}" for key in ("layers", "remat") if key in ours]
  if found.get(TORCH, {}).get("recomputes"):
    how.append(f"{TORCH} recomputes")
  return [
    name,
    *(
      f"{1e3 * seconds[side]:.4g}" if side in seconds else ""
      for side in (OURS, TORCH)
    ),
    ratio,
    percent(OURS),
    percent(TORCH),
    ", ".join(compile_s),
    ", ".join(how),
  ]


def _kernels(rows: Mapping[str, Row]) -> list[str]:
  """Returns a table of the attention kernels, if they were measured."""
  row = rows.get(f"kernels, {OURS}")
  if row is None:
    return []
  parts: dict[str, Any] = {"training": row["training"]}
  for tokens, values in row["decoding"].items():
    parts[f"decoding, {tokens} tokens"] = values
  body = [
    [
      name,
      str(part["kernel"]),
      *(
        f"{1e3 * part[key]:.3g}" if key in part else ""
        for key in ("seconds", "plain_seconds")
      ),
      f"{part['speedup']:.3g}" if "speedup" in part else "",
      ", ".join(part.get("wrong", ())) or "none",
    ]
    for name, part in parts.items()
  ]
  head = ("attention", "kernel", "ms", "plain XLA, ms", "speedup", "wrong")
  return _markdown(head, body)


def _markdown(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
  """Returns the lines of a table."""
  rule = ["---"] * len(head)
  return [f"| {' | '.join(cells)} |" for cells in (head, rule, *body)]
