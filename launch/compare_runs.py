"""Compares the metrics of two runs, step by step, to the last bit.

  python launch/compare_runs.py RUN_A RUN_B

Times, speeds and compile counts differ between machines and are ignored.
Metrics that only one run has are listed but do not count as a difference. The
exit status is 1 if a metric of both runs differs, or a step is missing in one
of them.
"""

import json
import pathlib
import sys

from azr_jax.cli import errors
from azr_jax.run import metrics


def read(folder: str) -> dict[int, dict[str, float]]:
  """Returns the metrics of a run folder by step."""
  lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  return {
    row["step"]: {
      k: v for k, v in row.items() if not k.startswith(metrics.MACHINE_METRICS)
    }
    for row in rows
  }


def compare(a: str, b: str) -> tuple[list[str], list[str], int]:
  """Compares two run folders.

  Returns:
    Descriptions of the differences, the names of metrics that one run lacks,
    and the number of compared values.
  """
  first, second = read(a), read(b)
  different, lacking, compared = [], set(), 0
  for step in sorted(first.keys() | second.keys()):
    if step not in first or step not in second:
      different.append(f"step {step} is only in one run")
      continue
    for name in sorted(first[step].keys() | second[step].keys()):
      if name not in first[step] or name not in second[step]:
        lacking.add(name)
        continue
      compared += 1
      if first[step][name] != second[step][name]:
        different.append(
          f"step {step} {name}: {first[step][name]!r} {second[step][name]!r}"
        )
  return different, sorted(lacking), compared


def main() -> None:
  """Prints the comparison and exits with its status."""
  parser = errors.Parser(__doc__)
  parser.add_argument("runs", nargs=2, metavar="RUN")
  a, b = parser.parse_args().runs
  different, lacking, compared = compare(a, b)
  for line in different:
    print(line)
  for name in lacking:
    print(f"only in one run: {name}")
  print(f"{compared} values compared, {len(different)} differ")
  sys.exit(1 if different else 0)


if __name__ == "__main__":
  errors.guard(main)
