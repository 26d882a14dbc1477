"""Stochastic rounding: values with fewer bits that keep their mean.

An update often changes a value by less than half a unit of bfloat16's last bit.
Rounding to the nearest value then loses the change in every step. Stochastic
rounding takes one of the two neighbours, each with the probability that makes
the expectation exact (Gupta et al., arXiv 1502.02551).

The random bits follow from the run's seed, the network, the number of updates
and the array, by a generator that counts positions. So they do not depend on
the mesh, and a resumed run draws the same.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, BFloat16, Float, Float32, Int, UInt32

from azr_jax.randomness import keys
from azr_jax.randomness.purposes import Purpose
from azr_jax.types import Params

# Networks and parts of a train state that draw independently.
POLICY, CRITIC = 0, 1
MOMENTS, PARAMS = 0, 1
# The bits of a float32 that a bfloat16 lacks.
_DROPPED = 16
# The sign of a float32, and the largest finite bfloat16.
_SIGN, _LARGEST = np.uint32(0x80000000), np.uint32(0x7F7F)


@dataclasses.dataclass(frozen=True)
class Draws:
  """Random bits for rounding the state of a network.

  Attributes:
    seed: the run's seed.
    network: `POLICY` or `CRITIC`.
  """

  seed: int = 0
  network: int = POLICY

  def bits(
    self,
    part: int,
    updates: Int[Array, ""],
    leaf: int,
    shape: tuple[int, ...],
  ) -> UInt32[Array, "..."]:
    """Returns 32 random bits for each entry of an array.

    Args:
      part: `MOMENTS` or `PARAMS`.
      updates: number of updates before this one.
      leaf: index of the array in its part.
      shape: the array's shape.
    """
    key = keys.of(
      self.seed, Purpose.ROUNDING, self.network, part, updates, leaf
    )
    return jax.random.bits(key, shape, jnp.uint32)


def to_bfloat16(
  x: Float32[Array, "*S"], bits: UInt32[Array, "*S"]
) -> BFloat16[Array, "*S"]:
  """Rounds stochastically to a neighbour in bfloat16.

  Values that bfloat16 can represent stay as they are, and finite values stay
  finite.

  Args:
    x: the values.
    bits: random numbers below 2^16.
  """
  # Integers, because arithmetic may flush the smallest numbers to 0.
  words = jax.lax.bitcast_convert_type(x, jnp.uint32)
  size = ((words & ~_SIGN) + bits) >> _DROPPED
  rounded = jnp.minimum(size, _LARGEST) | ((words & _SIGN) >> _DROPPED)
  rounded = jax.lax.bitcast_convert_type(
    rounded.astype(jnp.uint16), jnp.bfloat16
  )
  return jnp.where(jnp.isfinite(x), rounded, x.astype(jnp.bfloat16))


def low_bits(bits: UInt32[Array, "*S"]) -> UInt32[Array, "*S"]:
  """Returns the lower 16 of 32 random bits."""
  return bits & 0xFFFF


def high_bits(bits: UInt32[Array, "*S"]) -> UInt32[Array, "*S"]:
  """Returns the upper 16 of 32 random bits."""
  return bits >> 16


def to_fraction(bits: UInt32[Array, "*S"]) -> Float32[Array, "*S"]:
  """Returns uniform numbers between 0 and 1 from 16 random bits."""
  return (bits.astype(jnp.float32) + 0.5) / 2**16


def widened(params: Params) -> Params:
  """Returns parameters in float32; float32 ones stay as they are."""
  return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)


def add(
  params: Params, change: Params, draws: Draws, updates: Int[Array, ""]
) -> Params:
  """Adds float32 changes to parameters.

  Args:
    params: parameters. bfloat16 ones are rounded stochastically.
    change: the same structure, float32.
    draws: the random bits.
    updates: number of updates before this one.
  """
  leaves, structure = jax.tree.flatten(params)
  added = []
  for number, (leaf, more) in enumerate(
    zip(leaves, structure.flatten_up_to(change), strict=True)
  ):
    added.append(_add(leaf, more, draws, updates, number))
  return structure.unflatten(added)


def _add(
  x: Float[Array, "*S"],
  change: Float32[Array, "*S"],
  draws: Draws,
  updates: Int[Array, ""],
  number: int,
) -> Float[Array, "*S"]:
  """Adds a change to one array; see `add`."""
  total = x + change
  if x.dtype != jnp.bfloat16:
    return total.astype(x.dtype)
  bits = draws.bits(PARAMS, updates, number, x.shape)
  return to_bfloat16(total, low_bits(bits))
