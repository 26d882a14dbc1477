"""Grades ORZ's kept answers to "told to add" without asking for a box.

python -m experiments.habits.without_box [EXPERIMENT SCORE RUN...]
"""

import gzip
import json
import pathlib
import re
import statistics
import sys

_EXPERIMENTS = pathlib.Path(__file__).parents[1]
_DEFAULT = ("habits", "orz_told", "orz_0", "orz_1", "orz_2")
_NUMBER = re.compile(r"-?\d+")


def right_sums(runs: pathlib.Path, score: str, name: str) -> dict[str, bool]:
  """Returns whether the last number after `<answer>` is the sum, by item."""
  questions = json.loads((runs / f"items_{score}.json").read_text("utf-8"))
  path = runs / "answers" / f"{score}_{name}.jsonl.gz"
  found = {}
  for line in gzip.decompress(path.read_bytes()).decode().splitlines():
    row = json.loads(line)
    numbers = _NUMBER.findall(row["first"].partition("<answer>")[2])
    sums = re.search(r"-?\d+(?: [+-] -?\d+)+", questions[row["id"]])
    assert sums
    value = sum(map(int, re.findall(r"[+-]?\d+", sums[0].replace(" ", ""))))
    found[row["id"]] = bool(numbers) and int(numbers[-1]) == value
  return found


def main() -> None:
  """Prints the accuracies, and the paired difference with its error."""
  experiment, score, *names = sys.argv[1:] or _DEFAULT
  folder = _EXPERIMENTS / experiment / "runs"
  start = right_sums(folder, score, "start")
  runs = [right_sums(folder, score, name) for name in names]
  for name, one in zip(("start", *names), (start, *runs), strict=True):
    sys.stdout.write(f"{name}: {statistics.mean(one.values()):.3f}\n")
  gains = [statistics.mean(r[i] for r in runs) - start[i] for i in start]
  error = statistics.stdev(gains) / len(gains) ** 0.5
  sys.stdout.write(f"{statistics.mean(gains):+.3f} +- {error:.3f}\n")


if __name__ == "__main__":
  main()
