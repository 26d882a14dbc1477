"""Keys and values of sampling, in the pages of a pool.

Entry t of a row belongs to position t and lies in page `table[row, t // C]`, C
entries a page. Rows may share the pages of a common beginning. On several
devices the pool is split as rows are, and a table holds indices among the pages
of the row's own device.

Axis letters are those of `types.py`; N counts pages, M those of a row at most,
R rows, W entries of the list of live pages.
"""

from typing import TypeAlias

import flax.struct
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from azr_jax.types import Leaf

# Keys [L, N, K, E, C], the layout in which a query's product reads them, and
# values [L, N, K, C, E].
Pool: TypeAlias = tuple[jax.Array, jax.Array]


class PagedCache(flax.struct.PyTreeNode):
  """The cached tokens of some rows, as attention reads them.

  Attributes:
    pool: keys and values in pages.
    table: int32 [R, M], the pages of each row; any where it has none.
    length: int32 [R], how many entries of each row are filled.
    order: int32 [R], the rows of each device, longest first; from `by_length`.
    live: the pages that hold entries, for `page_kernel.py`; None: attention
      loops over the pages of the longest row.
  """

  pool: tuple[Leaf, Leaf]
  table: Leaf
  length: Leaf
  order: Leaf
  live: "LivePages | None" = None


class LivePages(flax.struct.PyTreeNode):
  """The pages of each device that hold entries, row after row.

  Attributes:
    page: int32 [W], the index of each page in the device's pool; 0 past
      `count`.
    row: int32 [W], the row that reads it; past `count` the number of rows.
    seen: int32 [W], how many of its entries are filled.
    count: int32 [1], how many pages there are.
  """

  page: Leaf
  row: Leaf
  seen: Leaf
  count: Leaf


class RecentKV(flax.struct.PyTreeNode):
  """Keys and values of the S tokens after a cache's, aligned in all rows.

  Attributes:
    k: [L, R, K, S, E].
    v: the same.
    count: int32 [], how many entries are filled.
  """

  k: Leaf
  v: Leaf
  count: Leaf


def init_pool(shape: tuple[int, int, int, int, int], dtype: DTypeLike) -> Pool:
  """Returns empty pages.

  Args:
    shape: L, N, K, C and E.
    dtype: the type of keys and values.
  """
  L, N, K, C, E = shape
  return jnp.zeros((L, N, K, E, C), dtype), jnp.zeros((L, N, K, C, E), dtype)


def entries_of_page(pool: Pool) -> int:
  """Returns C, the entries of a page."""
  return pool[1].shape[3]


def by_length(length: Int[Array, " R"]) -> Int[Array, " R"]:
  """Returns the rows of one device, longest first."""
  return jnp.argsort(-length).astype(jnp.int32)


@jax.named_scope("cache_write")
def write_entries(
  pool: Pool,
  new: tuple[jax.Array, jax.Array],
  table: Int[Array, "R M"],
  starts: Int[Array, " R"],
  counts: Int[Array, " R"],
) -> Pool:
  """Writes new entries of some rows into their pages, on one device.

  A page at a time is read, changed and written in place. A scatter to all at
  once would copy the whole pool. On a mesh, call it on each device's own rows
  (`jax.shard_map`).

  Args:
    pool: the device's pages.
    new: keys and values [L, R, K, S, E].
    table: the pages of each row.
    starts: the position of the first new entry of each row.
    counts: how many of the S entries are written.
  """
  C = entries_of_page(pool)
  new_k, new_v = new

  def write_row(row: jax.Array, pool: Pool) -> Pool:
    start, end = starts[row], starts[row] + counts[row]
    of_row = [
      jax.lax.dynamic_index_in_dim(array, row, 1)
      for array in (jnp.swapaxes(new_k, 3, 4), new_v)
    ]
    # The new entries of any page, aligned to it, lie within this padding.
    padded = [
      jnp.pad(array, [(C, C) if axis == along else (0, 0) for axis in range(5)])
      for array, along in zip(of_row, (4, 3), strict=True)
    ]

    def write_page(number: jax.Array, pool: Pool) -> Pool:
      first = number * C
      position = first + jnp.arange(C)
      is_new = (position >= start) & (position < end)
      pages = [
        jax.lax.dynamic_slice_in_dim(array, first - start + C, C, along)
        for array, along in zip(padded, (4, 3), strict=True)
      ]
      return _change_page(pool, table[row, number], pages, is_new)

    last = jnp.where(counts[row] > 0, -(-end // C), 0)
    return jax.lax.fori_loop(start // C, last, write_page, pool)

  return jax.lax.fori_loop(0, starts.shape[0], write_row, pool)


def _change_page(
  pool: Pool, page: jax.Array, fresh: list[jax.Array], is_new: jax.Array
) -> Pool:
  """Replaces those entries of a page that are new."""
  zero = jnp.int32(0)
  corner = zero, page, zero, zero, zero
  changed = []
  for array, new, along in zip(pool, fresh, (4, 3), strict=True):
    mask = jnp.expand_dims(is_new, [axis for axis in range(5) if axis != along])
    old = jax.lax.dynamic_slice(array, corner, new.shape)
    kept = jnp.where(mask, new.astype(array.dtype), old)
    changed.append(jax.lax.dynamic_update_slice(array, kept, corner))
  k, v = changed
  return k, v


@jax.named_scope("cache_write")
def copy_pages(
  pool: Pool,
  sources: Int[Array, " copies"],
  targets: Int[Array, " copies"],
  count: Int[Array, ""],
) -> Pool:
  """Copies pages to others, on one device.

  Args:
    pool: the device's pages.
    sources: pages to copy.
    targets: pages that become copies.
    count: how many of these pairs are copied, the first ones.
  """

  def copy(index: jax.Array, pool: Pool) -> Pool:
    copied = []
    for array in pool:
      page = jax.lax.dynamic_index_in_dim(array, sources[index], 1)
      copied.append(
        jax.lax.dynamic_update_index_in_dim(array, page, targets[index], 1)
      )
    k, v = copied
    return k, v

  return jax.lax.fori_loop(0, count, copy, pool)


@jax.named_scope("cache_write")
def append(
  into: Float[Array, "L B K N E"],
  new: Float[Array, "L B K S E"],
  start: Int[Array, ""],
) -> Float[Array, "L B K N E"]:
  """Returns recent keys or values with those of S tokens stored at `start`."""
  zero = jnp.int32(0)
  return jax.lax.dynamic_update_slice(
    into, new.astype(into.dtype), (zero, zero, zero, start, zero)
  )


def by_entry(
  k: Float[Array, "B S K E"], v: Float[Array, "B S K E"]
) -> tuple[Float[Array, "B K S E"], Float[Array, "B K S E"]]:
  """Returns keys and values in the layout of `RecentKV`."""
  return jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2)
