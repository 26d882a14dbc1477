"""Counts where greedy answers to sums of five numbers first go wrong.

  python -m experiments.five_numbers.mistakes [EXPERIMENT]

reads the kept answers of five_numbers, or of another size, and writes two lines
per arm: percent of the answers of all seeds by first mistake, and how many have
the sum's own numbers.

| mistake | the first wrong thing |
| --- | --- |
| `numbers N` | step N does not begin with the last result, or adds another
  number than the sum has there |
| `result N` | the result of step N |
| `stops after N` | there are N right steps, and no more |
| `other` | a step too many, or another number in the box |
"""

import collections
import pathlib
import re
import sys

from azr_jax.lab.experiments import answers

_EXPERIMENTS = pathlib.Path(__file__).parents[1]
_STEP = re.compile(r"(-?\d+)([+-])(-?\d+)=(-?\d+)")
_TERM = re.compile(r"(?:^|([+-]) )(\d+)")
_BOX = re.compile(r"\\boxed\{(-?\d+)\}")
RIGHT, OTHER = "right", "other"


def terms(question: str) -> list[int]:
  """Returns the numbers of a sum, with their signs."""
  left = question.rpartition(":")[2].strip()
  return [int(f"{sign}{n}") for sign, n in _TERM.findall(left)]


def first_mistake(question: str, answer: str) -> str:
  """Returns the first mistake of an answer, or `right`."""
  total, *rest = terms(question)
  thought = answer.partition("</think>")[0]
  steps = _STEP.findall(thought)
  for number, (left, sign, right, result) in enumerate(steps, 1):
    if number > len(rest):
      return OTHER
    added = int(right) if sign == "+" else -int(right)
    if (int(left), added) != (total, rest[number - 1]):
      return f"numbers {number}"
    total += added
    if int(result) != total:
      return f"result {number}"
  if len(steps) < len(rest):
    return f"stops after {len(steps)}"
  box = _BOX.search(answer)
  return RIGHT if box is not None and int(box[1]) == total else OTHER


def has_own_numbers(question: str, answer: str) -> bool:
  """Returns whether each step adds the sum's next number to the last result."""
  last, *rest = terms(question)
  steps = _STEP.findall(answer.partition("</think>")[0])
  if len(steps) != len(rest):
    return False
  for (left, sign, right, result), wanted in zip(steps, rest, strict=True):
    added = int(right) if sign == "+" else -int(right)
    if (int(left), added) != (last, wanted):
      return False
    last = int(result)
  return True


def is_right(question: str, answer: str) -> bool:
  """Returns whether the box has the sum, as the score does."""
  box = _BOX.search(answer)
  return box is not None and int(box[1]) == sum(terms(question))


def main() -> None:
  """Writes two lines per arm."""
  name = sys.argv[1] if len(sys.argv) > 1 else "five_numbers"
  runs = _EXPERIMENTS / name / "runs"
  for arm, pairs in answers.by_arm(runs, "greedy").items():
    found = collections.Counter(first_mistake(*pair) for pair in pairs)
    shares = [
      f"{name} {100 * count / len(pairs):.1f}"
      for name, count in found.most_common()
    ]
    own = [is_right(*pair) for pair in pairs if has_own_numbers(*pair)]
    sys.stdout.write(
      f"{arm}: {', '.join(shares)}\n"
      f"  own numbers {100 * len(own) / len(pairs):.1f}, of which right "
      f"{100 * sum(own) / max(1, len(own)):.1f}\n"
    )


if __name__ == "__main__":
  main()
