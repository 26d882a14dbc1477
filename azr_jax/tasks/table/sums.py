"""Generates rows of sums, the data of `configs/custom.py:tiny`."""

from collections.abc import Iterator
from typing import Any

import numpy as np

COUNT = 6000
_TASK = "State the final answer to the following arithmetic problem: "


def rows(count: int = COUNT, seed: int = 0) -> Iterator[dict[str, Any]]:
  """Yields rows with `prompt`, `answer` and `terms`.

  The model `embedded:orz-tiny` was trained on prompts of this form.
  """
  rng = np.random.default_rng(seed)
  for _ in range(count):
    numbers = rng.integers(0, 100, rng.integers(3, 5)).tolist()
    signs = rng.choice([1, -1], len(numbers) - 1).tolist()
    text = str(numbers[0])
    total = numbers[0]
    for sign, number in zip(signs, numbers[1:], strict=True):
      text += f" {'+' if sign > 0 else '-'} {number}"
      total += sign * number
    yield {
      "prompt": f"{_TASK}{text} =\n<think>",
      "answer": str(total),
      "terms": len(numbers),
    }
