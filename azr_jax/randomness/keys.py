"""Random keys of the device."""

import jax
from jaxtyping import Array, Int, Key

from azr_jax.randomness.purposes import Purpose


def of(
  seed: int, purpose: Purpose, *numbers: int | Int[Array, ""]
) -> Key[Array, ""]:
  """Returns the key of a seed, a purpose and numbers such as the step.

  Args:
    seed: the seed of the run.
    purpose: a purpose whose keys come from the seed.
    numbers: non-negative, below 2^32, and the same count for all keys of a
      purpose.
  """
  return fold(jax.random.key(seed), purpose, *numbers)


def fold(
  key: Key[Array, ""], purpose: Purpose, *numbers: int | Int[Array, ""]
) -> Key[Array, ""]:
  """Returns a key derived from another key; arguments as for `of`."""
  for number in (int(purpose), *numbers):
    key = jax.random.fold_in(key, number)
  return key
