"""Rows for the experts of tokens.

Every pair of a token and one of its experts has a row, and rows of the same
expert lie together. No pair is dropped, whatever the experts' load.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int, Int32

from azr_jax.models import grouped_products


class ExpertRows(NamedTuple):
  """Rows for pairs of a token and an expert, sorted by expert.

  Attributes:
    position: the row of each pair; the number of rows if it has none.
    source: the number of each row's pair, token x choices + choice; the number
      of pairs for rows of padding.
    sizes: the rows of each expert, padding included.
  """

  position: Int32[Array, "tokens choices"]
  source: Int32[Array, " rows"]
  sizes: Int32[Array, " X"]


def arrange(
  chosen: Int32[Array, "tokens choices"],
  experts: int,
  product: grouped_products.GroupedProduct,
) -> ExpertRows:
  """Returns the rows of some pairs.

  Args:
    chosen: the experts of each token; those >= `experts` get no row.
    experts: X.
    product: the product that reads the rows.
  """
  pairs = chosen.size
  flat = chosen.reshape(pairs)
  order = jnp.argsort(flat, stable=True).astype(jnp.int32)
  by_expert = flat[order]
  ends = jnp.searchsorted(by_expert, jnp.arange(experts), side="right")
  first = jnp.concatenate([jnp.zeros(1, ends.dtype), ends])
  counts = first[1:] - first[:-1]
  sizes = -(-counts // product.block) * product.block
  starts = jnp.cumsum(sizes) - sizes
  own = jnp.minimum(by_expert, experts - 1)
  row = starts[own] + jnp.arange(pairs) - first[own]
  rows = product.rows(pairs, experts)
  row = jnp.where(by_expert < experts, row, rows).astype(jnp.int32)
  source = jnp.full(rows, pairs, jnp.int32).at[row].set(order, mode="drop")
  position = jnp.zeros(pairs, jnp.int32).at[order].set(row)
  return ExpertRows(
    position.reshape(chosen.shape), source, sizes.astype(jnp.int32)
  )


def _rows_of(
  x: Float[Array, "_of D"], index: Int[Array, "*rows"]
) -> Float[Array, "*rows D"]:
  """Returns rows of an array; 0 where it has none."""
  return x.at[index].get(mode="fill", fill_value=0)


@jax.custom_vjp
def dispatch(
  x: Float[Array, "tokens D"], groups: ExpertRows
) -> Float[Array, "rows D"]:
  """Returns the token of each row."""
  return _rows_of(x, groups.source // groups.position.shape[1])


def _dispatch_forward(
  x: Float[Array, "tokens D"], groups: ExpertRows
) -> tuple[Float[Array, "rows D"], ExpertRows]:
  return dispatch(x, groups), groups


def _dispatch_backward(
  groups: ExpertRows, grad: Float[Array, "rows D"]
) -> tuple[Float[Array, "tokens D"], None]:
  # A gather, where the transposed gather would be a scatter.
  each = _rows_of(grad, groups.position)
  return each.astype(jnp.float32).sum(axis=1).astype(grad.dtype), None


dispatch.defvjp(_dispatch_forward, _dispatch_backward)


@jax.custom_vjp
def combine(
  rows: Float[Array, "rows D"],
  weights: Float32[Array, "tokens choices"],
  groups: ExpertRows,
) -> Float[Array, "tokens D"]:
  """Returns the weighted sum of each token's rows."""
  each = _rows_of(rows, groups.position).astype(jnp.float32)
  return jnp.einsum("tkd,tk->td", each, weights).astype(rows.dtype)


def _combine_forward(
  rows: Float[Array, "rows D"],
  weights: Float32[Array, "tokens choices"],
  groups: ExpertRows,
) -> tuple[Float[Array, "tokens D"], Any]:
  return combine(rows, weights, groups), (rows, weights, groups)


def _combine_backward(
  kept: Any, grad: Float[Array, "tokens D"]
) -> tuple[Float[Array, "rows D"], Float32[Array, "tokens choices"], None]:
  rows, weights, groups = kept
  choices = weights.shape[1]
  of_pair = weights.reshape(-1, 1)
  of_rows = _rows_of(grad, groups.source // choices).astype(jnp.float32)
  of_rows = of_rows * _rows_of(of_pair, groups.source)
  each = _rows_of(rows, groups.position).astype(jnp.float32)
  of_weights = jnp.einsum("tkd,td->tk", each, grad.astype(jnp.float32))
  return of_rows.astype(rows.dtype), of_weights, None


combine.defvjp(_combine_forward, _combine_backward)
