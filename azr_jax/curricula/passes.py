"""Passes over a set of things, each in an order of its own."""

from collections.abc import Sequence

import numpy as np


def turn(seeds: Sequence[int], total: int, first: int, count: int) -> list[int]:
  """What comes at some places of an endless row of passes.

  Args:
    seeds: what the orders are drawn from.
    total: how many things there are.
    first: the first place.
    count: how many places.

  Returns:
    `count` indices below `total`.
  """
  chosen = []
  orders: dict[int, np.ndarray] = {}
  for place in range(first, first + count):
    epoch, index = divmod(place, total)
    if epoch not in orders:
      rng = np.random.default_rng((*seeds, epoch, 0))
      orders[epoch] = rng.permutation(total)
    chosen.append(int(orders[epoch][index]))
  return chosen
