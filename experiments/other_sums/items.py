"""Writes the problems that are scored, beside this file.

  python experiments/other_sums/items.py

No run trains on problems of these kinds, and `two_numbers` has scored none of
these.
"""

import json
import pathlib
import random

_OF_EACH_KIND = 600
_SEED = 1
_SCORED_BEFORE = pathlib.Path(__file__).parents[1] / "two_numbers"


def _draw(draw: random.Random, kind: str) -> tuple[str, int]:
  """Returns a sum of three digits or a difference of two, and its answer."""
  if kind == "digits":
    a, b = draw.randint(100, 999), draw.randint(100, 999)
    return f"{a} + {b}", a + b
  b, a = sorted(draw.randint(10, 99) for _ in range(2))
  return f"{a} - {b}", a - b


def main() -> None:
  """Draws distinct problems."""
  draw = random.Random(_SEED)
  before = (_SCORED_BEFORE / "other_kinds.jsonl").read_text("utf-8")
  known = {json.loads(line)["question"] for line in before.splitlines()}
  found: dict[str, int] = {}
  for kind in ("digits", "minus"):
    target = len(found) + _OF_EACH_KIND
    while len(found) < target:
      question, answer = _draw(draw, kind)
      if question not in known:
        found[question] = answer
  rows = [{"question": q, "answer": f"#### {a}"} for q, a in found.items()]
  path = pathlib.Path(__file__).parent / "other_sums.jsonl"
  path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


if __name__ == "__main__":
  main()
