"""Writes the sums that are scored, beside this file.

  python experiments/tracebacks/items.py

They are all sums of two numbers of two digits that `two_numbers` does not train
on, in either order, nor scores, nor shows in its prompts.
"""

import itertools
import json
import pathlib
import random

_SHOWN = ("12 + 23", "61 + 20")
_NUMBERS = range(10, 100)
_SEED = 2


def _pair(question: str) -> tuple[int, ...]:
  """Returns the numbers of a sum in order of size."""
  return tuple(sorted(int(number) for number in question.split(" + ")))


def main() -> None:
  """Writes the sums in random order, and in a random order of the numbers."""
  here = pathlib.Path(__file__).parent
  known = set(map(_pair, _SHOWN))
  for name in ("train", "held_out"):
    path = here.parent / "two_numbers" / f"{name}.jsonl"
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    known.update(_pair(row["question"]) for row in rows)
  pairs = itertools.combinations_with_replacement(_NUMBERS, 2)
  new = [pair for pair in pairs if pair not in known]
  draw = random.Random(_SEED)
  draw.shuffle(new)
  text = ""
  for pair in new:
    a, b = draw.sample(pair, 2)
    row = {"question": f"{a} + {b}", "answer": f"#### {a + b}"}
    text += json.dumps(row) + "\n"
  (here / "scored.jsonl").write_text(text, "utf-8")


if __name__ == "__main__":
  main()
