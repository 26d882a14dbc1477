"""Epochs over a set of items, each in a different random order."""

from collections.abc import Iterable, Sequence

import numpy as np


def epoch_indices(
  seeds: Sequence[int], total: int, positions: Iterable[int]
) -> list[int]:
  """Returns the items at some positions of endlessly reshuffled epochs.

  Args:
    seeds: seeds of the shuffles; each epoch also folds in its number.
    total: number of items per epoch.
    positions: positions in the concatenated epochs, from 0.

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
