"""The problems of this experiment: sums of two numbers.

`python experiments/lora_orz/sums.py` writes sums.jsonl beside this file.
"""

import json
import pathlib


def main() -> None:
  """Writes the sums of numbers from 20 to 59, as rows of JSON."""
  rows = [
    {"question": f"{a} + {b}", "answer": str(a + b)}
    for a in range(20, 60)
    for b in range(20, 60)
  ]
  path = pathlib.Path(__file__).with_name("sums.jsonl")
  path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


if __name__ == "__main__":
  main()
