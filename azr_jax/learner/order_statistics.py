"""Quantiles and largest values of arrays that lie on many devices.

Nothing here sorts: counts are sums over devices, and a sort would gather the
whole array on each of them.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

# Limits of the histogram's bins, in nats: each is 7.5 % above the one before.
BIN_EDGES = np.logspace(-8, 2, 321, dtype=np.float32)


def counts_from_edges(
  x: Float[Array, "*B"], mask: Float[Array, "*B"]
) -> Float[Array, " edges"]:
  """Returns how many of x, where mask is 1, reach each of `BIN_EDGES`."""
  counted = mask > 0

  def count_from(edge: jax.Array) -> jax.Array:
    return jnp.sum((x >= edge) & counted, dtype=jnp.float32)

  return jax.vmap(count_from)(jnp.asarray(BIN_EDGES))


def quantile(
  counts: Float[Array, " edges"],
  total: Float[Array, ""],
  maximum: Float[Array, ""],
  fraction: float,
) -> Float[Array, ""]:
  """Returns an upper bound of a quantile, at most 7.5 % above it.

  Args:
    counts: the sum of what `counts_from_edges` returned.
    total: how many numbers were counted.
    maximum: the largest of them.
    fraction: the part of the numbers that are at most the quantile.

  Returns:
    The smallest edge that at most (1 - fraction) of the numbers reach; 0 if
    that is the first edge, the maximum if it is less.
  """
  above = counts <= (1.0 - fraction) * total
  edges = jnp.asarray(BIN_EDGES).at[0].set(0.0)
  edge = jnp.where(jnp.any(above), edges[jnp.argmax(above)], jnp.inf)
  return jnp.minimum(edge, maximum)


def largest(
  x: Float[Array, "*B"], mask: Float[Array, "*B"], count: Int[Array, ""]
) -> Bool[Array, "*B"]:
  """Returns true at the `count` largest of x where mask is 1.

  Numbers that equal the smallest of these are chosen, too. If fewer than
  `count` are left by the mask, all of them are.
  """
  order = jnp.where(mask > 0, _ordered_bits(x), jnp.uint32(0))

  def halve(
    _: jax.Array, bounds: tuple[jax.Array, jax.Array]
  ) -> tuple[jax.Array, jax.Array]:
    low, high = bounds
    middle = low + (high - low) // 2
    enough = jnp.sum(order >= middle) >= count
    return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

  bounds = jnp.uint32(0), jnp.uint32(0xFFFFFFFF)
  threshold, _ = jax.lax.fori_loop(0, 32, halve, bounds)
  return (order >= threshold) & (mask > 0)


def _ordered_bits(x: Float[Array, "*B"]) -> UInt32[Array, "*B"]:
  """Returns integers above 0 that are ordered as the float32 numbers are."""
  bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
  is_negative = bits >> 31 > 0
  return jnp.where(is_negative, ~bits, bits | jnp.uint32(1 << 31))
