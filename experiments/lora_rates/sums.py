"""Sums of two numbers, for the experiments lora_rates, lora and lora_orz.

`python experiments/lora_rates/sums.py` writes sums.jsonl beside this file, with
an example in each prompt, and `../lora_orz/sums.jsonl` without.
"""

import json
import pathlib

_EXAMPLE = "12 + 23 = 35\n"


def is_right(completion: str, answer: str) -> float:
  """Returns 1 for the right number and nothing else."""
  return float(completion.strip() == answer)


def main() -> None:
  """Writes the sums of numbers from 20 to 59, as rows of JSON."""
  numbers = range(20, 60)
  sums = [(f"{a} + {b}", str(a + b)) for a in numbers for b in numbers]
  shown = [
    {"prompt": f"{_EXAMPLE}{terms} =", "answer": answer}
    for terms, answer in sums
  ]
  bare = [{"question": terms, "answer": answer} for terms, answer in sums]
  here = pathlib.Path(__file__).parent
  for folder, rows in ((here, shown), (here.parent / "lora_orz", bare)):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "sums.jsonl").write_text(text, "utf-8")


if __name__ == "__main__":
  main()
