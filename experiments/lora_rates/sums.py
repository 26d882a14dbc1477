"""The task of this experiment: sums of two numbers, by example.

`python experiments/lora_rates/sums.py > experiments/lora_rates/sums.jsonl`
"""

import json

_EXAMPLES = "12 + 23 = 35\n61 + 20 = 81\n"


def is_right(completion: str, answer: str) -> float:
  """Returns 1 for the right number and nothing else."""
  return float(completion.strip() == answer)


def main() -> None:
  """Prints the sums of numbers from 20 to 59, as rows of JSON."""
  for a in range(20, 60):
    for b in range(20, 60):
      row = {"prompt": f"{_EXAMPLES}{a} + {b} =", "answer": str(a + b)}
      print(json.dumps(row))


if __name__ == "__main__":
  main()
