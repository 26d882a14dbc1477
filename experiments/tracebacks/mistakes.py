"""Counts by how much greedy answers to sums are off.

  python -m experiments.tracebacks.mistakes

reads the kept answers and writes a line per score and arm, in percent of the
answers of all seeds.

| kind | the answer |
| --- | --- |
| `right` | is the sum |
| `units` | is off by one to nine |
| `tens` | is off by a multiple of ten |
| `both` | is off by eleven or more, but no multiple of ten |
| `none` | is not a number alone |
"""

import collections
import pathlib
import re
import sys

from azr_jax.lab.experiments import answers

_RUNS = pathlib.Path(__file__).parent / "runs"
_SCORES = "new_sums", "three_digits"
_NUMBER = re.compile(r"\s*(-?\d+)\.?\s*")


def kind(question: str, answer: str) -> str:
  """Returns the kind of an answer to a sum such as `12 + 23`."""
  found = _NUMBER.fullmatch(answer)
  if found is None:
    return "none"
  off = int(found[1]) - sum(map(int, question.split(" + ")))
  if off == 0:
    return "right"
  if abs(off) < 10:
    return "units"
  return "both" if off % 10 else "tens"


def main() -> None:
  """Writes a line per score and arm."""
  for score in _SCORES:
    for arm, pairs in answers.by_arm(_RUNS, score).items():
      found = collections.Counter(kind(*pair) for pair in pairs)
      shares = [
        f"{name} {100 * count / len(pairs):.1f}"
        for name, count in found.most_common()
      ]
      sys.stdout.write(f"{score}, {arm}: {', '.join(shares)}\n")


if __name__ == "__main__":
  main()
