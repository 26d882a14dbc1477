"""Writes the sums that are scored, beside this file.

  python experiments/longer_sums/items.py

No run trains on sums of these kinds, and `two_numbers` has scored none of them.
"""

import json
import pathlib
import random

_OF_EACH_KIND = 600
_SEED = 1
_SCORED_BEFORE = pathlib.Path(__file__).parents[1] / "two_numbers"


def main() -> None:
  """Draws distinct sums of three numbers, and sums of three digits."""
  draw = random.Random(_SEED)
  before = (_SCORED_BEFORE / "other_kinds.jsonl").read_text("utf-8")
  known = {json.loads(line)["question"] for line in before.splitlines()}
  found: dict[str, int] = {}
  for terms, low, high in ((3, 10, 99), (2, 100, 999)):
    target = len(found) + _OF_EACH_KIND
    while len(found) < target:
      numbers = [draw.randint(low, high) for _ in range(terms)]
      question = " + ".join(map(str, numbers))
      if question not in known:
        found[question] = sum(numbers)
  rows = [{"question": q, "answer": f"#### {a}"} for q, a in found.items()]
  path = pathlib.Path(__file__).parent / "longer_sums.jsonl"
  path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


if __name__ == "__main__":
  main()
