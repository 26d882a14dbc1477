"""Epochs over a set of items, each in a different random order."""

from collections.abc import Iterable

import numpy as np

from azr_jax.randomness import streams
from azr_jax.randomness.purposes import Purpose


def epoch_indices(
  seed: int, total: int, positions: Iterable[int], stage: int = 1
) -> list[int]:
  """Returns the items at some positions of endlessly reshuffled epochs.

  Args:
    seed: the seed of the run.
    total: number of items per epoch.
    positions: positions in the concatenated epochs, from 0.
    stage: the stage. Each one shuffles differently.

  Returns:
    An index below `total` for each position.
  """
  indices = []
  orders: dict[int, np.ndarray] = {}
  for position in positions:
    epoch, offset = divmod(position, total)
    if epoch not in orders:
      rng = streams.generator(seed, Purpose.EPOCHS, stage, epoch)
      orders[epoch] = rng.permutation(total)
    indices.append(int(orders[epoch][offset]))
  return indices
