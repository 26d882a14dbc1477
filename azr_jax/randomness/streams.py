"""Random generators of the host.

Published puzzles and questions are not drawn here, so that they stay the same.
"""

import hashlib

import numpy as np

from azr_jax.randomness.purposes import Purpose


def generator(
  seed: int, purpose: Purpose, *numbers: int
) -> np.random.Generator:
  """Returns the generator of a seed, a purpose and numbers such as the step.

  Any other seed, purpose or tuple of numbers gives an independent stream. They
  are hashed as text, because NumPy alone would ignore zeros at the end of a
  short tuple.
  """
  text = " ".join(str(int(part)) for part in (seed, purpose, *numbers))
  digest = hashlib.sha256(text.encode()).digest()
  return np.random.default_rng(int.from_bytes(digest, "big"))
