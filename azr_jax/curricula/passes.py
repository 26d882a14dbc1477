"""Epochs over a set of items, each in its own random order."""

from collections.abc import Sequence

import numpy as np


def epoch_indices(
  seeds: Sequence[int], total: int, first: int, count: int
) -> list[int]:
  """Returns items `first ... first+count-1` of endless reshuffled epochs.

  Args:
    seeds: seeds of the orders; an epoch's order depends on them and its number.
    total: number of items of an epoch.
    first: position of the first item, from 0.
    count: number of items.

  Returns:
    `count` indices below `total`.
  """
  indices = []
  orders: dict[int, np.ndarray] = {}
  for position in range(first, first + count):
    epoch, offset = divmod(position, total)
    if epoch not in orders:
      rng = np.random.default_rng((*seeds, epoch, 0))
      orders[epoch] = rng.permutation(total)
    indices.append(int(orders[epoch][offset]))
  return indices
