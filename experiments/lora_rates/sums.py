"""The task of this experiment: sums of two numbers, by example.

`python experiments/lora_rates/sums.py` writes sums.jsonl beside this file.
"""

import json
import pathlib

_EXAMPLE = "12 + 23 = 35\n"


def is_right(completion: str, answer: str) -> float:
  """Returns 1 for the right number and nothing else."""
  return float(completion.strip() == answer)


def main() -> None:
  """Writes the sums of numbers from 20 to 59, as rows of JSON."""
  rows = [
    {"prompt": f"{_EXAMPLE}{a} + {b} =", "answer": str(a + b)}
    for a in range(20, 60)
    for b in range(20, 60)
  ]
  path = pathlib.Path(__file__).with_name("sums.jsonl")
  path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


if __name__ == "__main__":
  main()
