"""Epochs over a set of items, each in its own random order."""

from collections.abc import Iterable, Sequence

import numpy as np


def epoch_indices(
  seeds: Sequence[int], total: int, positions: Iterable[int]
) -> list[int]:
  """Returns the items at some positions of endless reshuffled epochs.

  Args:
    seeds: seeds of the orders; an epoch's order depends on them and its number.
    total: number of items of an epoch.
    positions: from 0.

  Returns:
    An index below `total` for each position.
  """
  indices = []
  orders: dict[int, np.ndarray] = {}
  for position in positions:
    epoch, offset = divmod(position, total)
    if epoch not in orders:
      rng = np.random.default_rng((*seeds, epoch, 0))
      orders[epoch] = rng.permutation(total)
    indices.append(int(orders[epoch][offset]))
  return indices
