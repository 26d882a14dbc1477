"""Counts by how much greedy answers to sums are off.

  python -m experiments.tracebacks.mistakes

reads the kept answers and writes a line per score and arm, in percent of the
answers of all seeds.

| kind | the answer |
| --- | --- |
| `right` | is the sum |
| `units` | is a number with the right tens: off by less than ten |
| `tens` | is off by a multiple of ten |
| `both` | is another number |
| `none` | is not a number alone |
"""

import collections
import pathlib
import re
import sys

from azr_jax.lab.experiments import answers

_RUNS = pathlib.Path(__file__).parent / "runs"
_SCORES = "new_sums", "three_digits"
_NUMBER = re.compile(r"\s*(-?\d+)\s*")
_TERM = re.compile(r"([+-]?)\s*(\d+)")


def kind(question: str, answer: str) -> str:
  """Returns the kind of an answer to a sum such as `12 + 23`."""
  found = _NUMBER.fullmatch(answer)
  if found is None:
    return "none"
  terms = _TERM.findall(question.partition("=")[0])
  off = int(found[1]) - sum(int(f"{sign}{n}") for sign, n in terms)
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
