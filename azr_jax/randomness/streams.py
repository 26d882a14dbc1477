"""Random generators of the host.

Datasets that other people or results name by a seed, such as the puzzles of
Countdown, keep generators of their own.
"""

import hashlib

import numpy as np

from azr_jax.randomness.purposes import Purpose


def generator(
  seed: int, purpose: Purpose, *numbers: int
) -> np.random.Generator:
  """Returns the generator of a seed, a purpose and numbers such as the step.

  Any other seed, purpose or tuple of numbers gives an independent stream. A
  tuple passed to NumPy would not: NumPy ignores zeros at the end of a short
  one.
  """
  text = " ".join(str(int(part)) for part in (seed, purpose, *numbers))
  digest = hashlib.sha256(text.encode()).digest()
  return np.random.default_rng(int.from_bytes(digest, "big"))
