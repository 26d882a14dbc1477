"""Rewards and data of the experiment.

`python experiments/two_numbers/sums.py` writes the data beside this file. No
sum is in two files, in either order.
"""

import json
import pathlib
import random
import re

_EXAMPLES = "12 + 23 = 35\n61 + 20 = 81\n"
_HELD_OUT = 300
_OF_EACH_KIND = 100
_NUMBER = re.compile(r"\s*-?\d+\s*")


def right(completion: str, answer: str) -> float:
  """Returns 1 for the sum and nothing else."""
  return float(completion.strip() == answer)


def told(
  completion: str, question: str, answer: str
) -> float | dict[str, object]:
  """Returns `right`, and for a wrong sum the right one as feedback."""
  if right(completion, answer):
    return 1.0
  return {"reward": 0.0, "feedback": f"{question} = {answer}\n"}


def coin(prompts: list[str], completions: list[str]) -> list[float]:
  """Returns 0 or 1 at random, by the responses to a prompt."""
  draw = random.Random(repr((prompts[:1], completions)))
  return [float(draw.random() < 0.5) for _ in completions]


def majority(completions: list[str]) -> list[float]:
  """Returns 1 for the most frequent response; of several, the first one."""
  texts = [completion.strip() for completion in completions]
  winner = max(texts, key=texts.count)
  return [float(text == winner) for text in texts]


def style(completion: str) -> str:
  """Returns whether a response is a number alone."""
  return "number" if _NUMBER.fullmatch(completion) else "other"


def _others(draw: random.Random) -> list[tuple[str, int]]:
  """Returns questions of kinds that no run trains on, with their answers."""

  def number(digits: int) -> int:
    return draw.randint(10 ** (digits - 1), 10**digits - 1)

  found = []
  for _ in range(_OF_EACH_KIND):
    a, b, c = (number(2) for _ in range(3))
    found.append((f"{a} + {b} + {c}", a + b + c))
  for _ in range(_OF_EACH_KIND):
    a, b = number(3), number(3)
    found.append((f"{a} + {b}", a + b))
  for _ in range(_OF_EACH_KIND):
    b, a = sorted(number(2) for _ in range(2))
    found.append((f"{a} - {b}", a - b))
  return found


def main() -> None:
  """Writes the files."""
  draw = random.Random(0)
  pairs = {(draw.randint(10, 99), draw.randint(10, 99)) for _ in range(3200)}
  # a + b is a row, or b + a.
  sums = sorted({min(pair, pair[::-1]): pair for pair in pairs}.values())
  draw.shuffle(sums)
  questions = [(f"{a} + {b}", a + b) for a, b in sums]
  rows = [
    {
      "prompt": f"{_EXAMPLES}{question} =",
      "question": question,
      "answer": str(answer),
      "completion": f" {answer}\n",
    }
    for question, answer in questions[_HELD_OUT:]
  ]
  scored = {
    "held_out": questions[:_HELD_OUT],
    "other_kinds": _others(draw),
  }
  here = pathlib.Path(__file__).parent
  _write(here / "train.jsonl", rows)
  for name, part in scored.items():
    _write(
      here / f"{name}.jsonl",
      [{"question": q, "answer": f"#### {a}"} for q, a in part],
    )


def _write(path: pathlib.Path, rows: list[dict[str, str]]) -> None:
  path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


if __name__ == "__main__":
  main()
