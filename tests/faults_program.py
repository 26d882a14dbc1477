"""`azr_jax.train` with a reward that is NaN in one step.

python tests/faults_program.py STEP FLAGS
"""

import dataclasses
import sys

import numpy as np

from azr_jax import train
from azr_jax.trainer.batching import Batching

if __name__ == "__main__":
  poisoned = int(sys.argv.pop(1))
  pack = Batching.pack

  def pack_poisoned(self, trajectories, values, step):
    batch = pack(self, trajectories, values, step)
    if step != poisoned:
      return batch
    nan = np.full_like(batch.advantages, np.nan)
    return dataclasses.replace(batch, advantages=nan)

  Batching.pack = pack_poisoned
  train.run()
