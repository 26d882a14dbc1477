r"""The environment of `configs/environment.py:tiny`.

The model solves sums of integers. It writes `12+7=19 19-4=15</think>` and then
the result, `<answer>\\boxed{15}</answer>`.
"""

import random

from azr_jax.environments import Turn
from azr_jax.systems.custom import examples


class Sums:
  """Asks up to `sums` sums in a row; a wrong answer ends the episode."""

  def __init__(self, sums: int = 3, count: int = 2000):
    """Makes an environment with `count` tasks."""
    self._sums, self._count = sums, count

  def tasks(self) -> list[dict[str, int]]:
    """Returns the tasks; each is a seed."""
    return [{"seed": seed} for seed in range(self._count)]

  def begin(self, task: dict[str, int]) -> str:
    """Asks the first sum."""
    self._random, self._done = random.Random(task["seed"]), 0
    return self._next_sum()

  def step(self, reply: str) -> Turn:
    """Rewards a right answer and asks the next sum."""
    number = examples.number_in(reply)
    if number is None or int(number) != self._answer:
      return Turn(is_done=True, metrics={"solved": self._done, "correct": 0.0})
    self._done += 1
    is_done = self._done == self._sums
    metrics = {"solved": self._done, "correct": float(is_done)}
    shown = "" if is_done else self._next_sum()
    return Turn(shown, 1 / self._sums, is_done, metrics)

  def _next_sum(self) -> str:
    numbers = [self._random.randint(10, 99) for _ in range(3)]
    signs = [self._random.choice((-1, 1)) for _ in numbers[1:]]
    terms = list(zip(signs, numbers[1:], strict=True))
    self._answer = numbers[0] + sum(sign * n for sign, n in terms)
    rest = "".join(f" {'+' if sign > 0 else '-'} {n}" for sign, n in terms)
    return (
      "State the final answer to the following arithmetic problem: "
      f"{numbers[0]}{rest} =\n<think>"
    )
