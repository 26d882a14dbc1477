"""Counts which digits of greedy answers to sums are right.

  python -m experiments.tracebacks.mistakes

reads the kept answers and writes a line per score and arm, in percent of the
answers of all seeds: the sum is right, its last digit, and the digits before.
"""

import pathlib
import re
import sys

from azr_jax.lab.experiments import answers

_RUNS = pathlib.Path(__file__).parent / "runs"
_SCORES = "new_sums", "three_digits"
_NUMBER = re.compile(r"\s*(\d+)\.?\s*")


def right_digits(question: str, answer: str) -> tuple[bool, bool]:
  """Returns whether all digits but the last are right, and whether the last is.

  Both are wrong if the answer is not a number from 0 on, alone.

  Args:
    question: a sum such as `12 + 23`.
    answer: the response.
  """
  found = _NUMBER.fullmatch(answer)
  if found is None:
    return False, False
  front, last = divmod(sum(map(int, question.split(" + "))), 10)
  return int(found[1]) // 10 == front, int(found[1]) % 10 == last


def main() -> None:
  """Writes a line per score and arm."""
  for score in _SCORES:
    for arm, pairs in answers.by_arm(_RUNS, score).items():
      found = [right_digits(*pair) for pair in pairs]
      whole, front, last = (
        100 * sum(map(part, found)) / len(found)
        for part in (all, lambda one: one[0], lambda one: one[1])
      )
      sys.stdout.write(
        f"{score}, {arm}: right {whole:.1f}, last digit {last:.1f}, digits "
        f"before {front:.1f}\n"
      )


if __name__ == "__main__":
  main()
