"""Quantiles and largest values of arrays sharded over many devices.

Nothing here sorts. Counts are sums over devices, whereas a sort would gather
the whole array on each device.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

# Edges of the histogram's bins, in nats; each is 7.5 % above the previous one.
BIN_EDGES = np.logspace(-8, 2, 321, dtype=np.float32)


def counts_from_edges(
  x: Float[Array, "*B"], mask: Float[Array, "*B"]
) -> Float[Array, " edges"]:
  """Returns, for each of `BIN_EDGES`, how many x are at least the edge.

  Counts only x where mask is 1.
  """
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
    counts: summed results of `counts_from_edges`.
    total: number of values counted.
    maximum: the largest value.
    fraction: fraction of the values that are at most the quantile.

  Returns:
    The smallest edge that at most (1 - fraction) of the values reach, or the
    maximum if it is smaller. 0 if that edge is the first one.
  """
  above = counts <= (1.0 - fraction) * total
  edges = jnp.asarray(BIN_EDGES).at[0].set(0.0)
  edge = jnp.where(jnp.any(above), edges[jnp.argmax(above)], jnp.inf)
  return jnp.minimum(edge, maximum)


def largest(
  x: Float[Array, "*B"], mask: Float[Array, "*B"], count: Int[Array, ""]
) -> Bool[Array, "*B"]:
  """Returns true at the `count` largest x where mask is 1.

  Ties with the smallest of these are included. If the mask leaves fewer than
  `count` values, all of them are selected.
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
  """Returns positive integers in the order of the float32 numbers."""
  bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
  is_negative = bits >> 31 > 0
  return jnp.where(is_negative, ~bits, bits | jnp.uint32(1 << 31))
