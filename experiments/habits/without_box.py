"""Grades ORZ's kept answers to "told to add" without asking for a box.

python experiments/habits/without_box.py
"""

import gzip
import json
import pathlib
import re
import statistics
import sys

_RUNS = pathlib.Path(__file__).parent / "runs"
_NUMBER = re.compile(r"-?\d+")


def _right(name: str, questions: dict[str, str]) -> dict[str, bool]:
  """Returns whether the last number after `<answer>` is the sum, by item."""
  path = _RUNS / "answers" / f"orz_told_{name}.jsonl.gz"
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
  text = (_RUNS / "items_orz_told.json").read_text("utf-8")
  questions = json.loads(text)
  start = _right("start", questions)
  runs = [_right(f"orz_{seed}", questions) for seed in range(3)]
  for name, one in (("start", start), *enumerate(runs)):
    sys.stdout.write(f"{name}: {statistics.mean(one.values()):.3f}\n")
  gains = [statistics.mean(r[i] for r in runs) - start[i] for i in start]
  error = statistics.stdev(gains) / len(gains) ** 0.5
  sys.stdout.write(f"{statistics.mean(gains):+.3f} +- {error:.3f}\n")


if __name__ == "__main__":
  main()
