"""Sums and means over the sequences of packed rows."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def sums(
  x: Float[Array, "B S"], segment_ids: Int[Array, "B S"]
) -> Float[Array, "B S"]:
  """Returns, at each target, the sum of x over the target's sequence.

  Args:
    x: values to sum; 0 at targets that do not count.
    segment_ids: the index of the target's sequence in its row.
  """

  def sum_row(x_S: jax.Array, segments_S: jax.Array) -> jax.Array:
    totals = jax.ops.segment_sum(x_S, segments_S, segments_S.shape[0] + 1)
    return totals[segments_S]

  return jax.vmap(sum_row)(x, segment_ids)


def means(
  x: Float[Array, "B S"],
  mask: Float[Array, "B S"],
  segment_ids: Int[Array, "B S"],
) -> Float[Array, "B S"]:
  """Returns, at each target, the mean of x over its sequence where mask is 1.

  The mean of a sequence without such targets is 0.
  """
  counts = sums(mask, segment_ids)
  return sums(x * mask, segment_ids) / jnp.maximum(counts, 1.0)
