"""Keys and values of sampling, in the pages of a pool.

Entry t of a row belongs to position t and lies in page `table[row, t // C]`, C
entries a page. Rows may share the pages of a common beginning. On several
devices the pool is split as rows are, and a table holds indices among the pages
of the row's own device.

They may have 8 bits (`quantization.py`). Then each token has a scale in each
key head, and is rounded once, where it is made: a token attends to the same
numbers whether they lie in pages or not, so results do not depend on where
calls begin.

Axis letters are those of `types.py`.
"""

import flax.struct
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from azr_jax.models import quantization
from azr_jax.types import Leaf

# The axes of tokens in the arrays of a `Pool`.
_TOKEN_AXES = (4, 3, 3, 3)


class Pool(flax.struct.PyTreeNode):
  """Keys and values in pages.

  Attributes:
    k: [L, P, K, E, C], the layout in which a query's product reads keys.
    v: [L, P, K, C, E].
    k_scale: float32 [L, P, K, C], which multiply keys of 8 bits; None: others.
    v_scale: the same of values.
  """

  k: Leaf
  v: Leaf
  k_scale: Leaf | None = None
  v_scale: Leaf | None = None


class Entries(flax.struct.PyTreeNode):
  """Keys and values of S tokens, in one layer or, with an axis L, in all.

  Attributes:
    k: [R, K, S, E], in the type of the pool.
    v: the same.
    k_scale: float32 [R, K, S]; None: as in `Pool`.
    v_scale: the same.
  """

  k: Leaf
  v: Leaf
  k_scale: Leaf | None = None
  v_scale: Leaf | None = None


class PagedCache(flax.struct.PyTreeNode):
  """The cached tokens of some rows, as attention reads them.

  Attributes:
    pool: keys and values in pages.
    table: int32 [R, M], the pages of each row; any where it has none.
    length: int32 [R], how many entries of each row are filled.
    order: int32 [R], the rows of each device, longest first; from `by_length`.
    live: which pages hold entries, for `page_kernel.py` on TPUs and for
      `gpu_page_kernel.py`; None: attention loops over the pages of the longest
      row.
  """

  pool: Pool
  table: Leaf
  length: Leaf
  order: Leaf
  live: "LivePages | RowShares | None" = None


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


class RowShares(flax.struct.PyTreeNode):
  """The filled entries of each device's rows in shares, row after row.

  Attributes:
    row: int32 [W], the row of each share.
    start: int32 [W], its first entry.
    end: int32 [W], the entry after its last one; shares past the last have
      none.
    first: int32 [R + 1], the first share of each row, and the number of shares.
  """

  row: Leaf
  start: Leaf
  end: Leaf
  first: Leaf


class RecentKV(flax.struct.PyTreeNode):
  """Keys and values of the S tokens after a cache's.

  Attributes:
    entries: of all layers.
    count: int32 [], how many of them are filled; [R] if each row has as many
      as it has, which drafts need.
  """

  entries: Entries
  count: Leaf


def init_pool(shape: tuple[int, int, int, int, int], dtype: DTypeLike) -> Pool:
  """Returns empty pages.

  Args:
    shape: L, P, K, C and E.
    dtype: the type of keys and values.
  """
  L, P, K, C, E = shape
  k, v = jnp.zeros((L, P, K, E, C), dtype), jnp.zeros((L, P, K, C, E), dtype)
  if not quantization.is_quantized(dtype):
    return Pool(k, v)
  scale = jnp.zeros((L, P, K, C), jnp.float32)
  return Pool(k, v, scale, scale)


def entries_of_page(pool: Pool) -> int:
  """Returns C, the entries of a page."""
  return pool.v.shape[3]


def make_entries(
  k: Float[Array, "R S K E"], v: Float[Array, "R S K E"], pool: Pool
) -> Entries:
  """Returns the keys and values of new tokens, in the type of a pool."""
  k, v = jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2)
  if pool.k_scale is None:
    return Entries(k, v)
  # One operation of both has half of the cost, for each token and layer.
  kv, scale = quantization.quantize(jnp.stack([k, v]), pool.k.dtype, axes=(4,))
  return Entries(kv[0], kv[1], scale[0], scale[1])


def no_entries(pool: Pool, rows: int, tokens: int) -> Entries:
  """Returns room for the keys and values of tokens of some rows, in all layers.

  Args:
    pool: whose types they have.
    rows: R.
    tokens: S of each row.
  """
  L, _, K, _, E = pool.v.shape
  room = jnp.zeros((L, rows, K, tokens, E), pool.v.dtype)
  if pool.k_scale is None:
    return Entries(room, room)
  scale = jnp.zeros((L, rows, K, tokens), jnp.float32)
  return Entries(room, room, scale, scale)


def by_length(length: Int[Array, " R"]) -> Int[Array, " R"]:
  """Returns the rows of one device, longest first."""
  return jnp.argsort(-length).astype(jnp.int32)


@jax.named_scope("cache_write")
def write_entries(
  pool: Pool,
  new: Entries,
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
    new: keys and values of S tokens, in all layers.
    table: the pages of each row.
    starts: the position of the first new entry of each row.
    counts: how many of the S entries are written.
  """
  C = entries_of_page(pool)

  def write_row(row: jax.Array, pool: Pool) -> Pool:
    start, end = starts[row], starts[row] + counts[row]
    of_row = jax.tree.map(
      lambda x: jax.lax.dynamic_index_in_dim(x, row, 1),
      new.replace(k=jnp.swapaxes(new.k, 3, 4)),
    )
    # The new entries of any page, aligned to it, lie within this padding.
    padded = [
      jnp.pad(
        array,
        [(C, C) if axis == along else (0, 0) for axis in range(array.ndim)],
      )
      for array, along in _with_token_axes(of_row)
    ]

    def write_page(number: jax.Array, pool: Pool) -> Pool:
      first = number * C
      position = first + jnp.arange(C)
      is_new = (position >= start) & (position < end)
      pages = [
        jax.lax.dynamic_slice_in_dim(array, first - start + C, C, along)
        for array, along in zip(padded, _TOKEN_AXES, strict=False)
      ]
      return _change_page(pool, table[row, number], pages, is_new)

    last = jnp.where(counts[row] > 0, -(-end // C), 0)
    return jax.lax.fori_loop(start // C, last, write_page, pool)

  return jax.lax.fori_loop(0, starts.shape[0], write_row, pool)


def _with_token_axes(arrays: Pool | Entries) -> list[tuple[jax.Array, int]]:
  """Returns each array, of layouts as in a pool, and its axis of tokens."""
  return list(zip(jax.tree.leaves(arrays), _TOKEN_AXES, strict=False))


def _change_page(
  pool: Pool, page: jax.Array, fresh: list[jax.Array], is_new: jax.Array
) -> Pool:
  """Replaces those entries of a page that are new."""
  zero = jnp.int32(0)
  changed = []
  for (array, along), new in zip(_with_token_axes(pool), fresh, strict=True):
    others = [axis for axis in range(array.ndim) if axis != along]
    mask = jnp.expand_dims(is_new, others)
    corner = (zero, page, *[zero] * (array.ndim - 2))
    old = jax.lax.dynamic_slice(array, corner, new.shape)
    kept = jnp.where(mask, new.astype(array.dtype), old)
    changed.append(jax.lax.dynamic_update_slice(array, kept, corner))
  return jax.tree.unflatten(jax.tree.structure(pool), changed)


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
    def copy_of(array: jax.Array) -> jax.Array:
      page = jax.lax.dynamic_index_in_dim(array, sources[index], 1)
      return jax.lax.dynamic_update_index_in_dim(array, page, targets[index], 1)

    return jax.tree.map(copy_of, pool)

  return jax.lax.fori_loop(0, count, copy, pool)


@jax.named_scope("cache_write")
def append(
  into: Entries, new: Entries, start: Int[Array, ""] | Int[Array, " R"]
) -> Entries:
  """Returns entries of all layers with those of S tokens stored at `start`.

  Args:
    into: room for entries.
    new: the tokens' entries.
    start: where they begin, in all rows or in each.
  """
  if start.ndim:
    # A scatter at rows and tokens: as a batched one of slices, the partitioner
    # of several GPUs refuses it.
    R, S = start.shape[0], new.v.shape[3]
    at = jnp.arange(R)[:, None], start[:, None] + jnp.arange(S)[None]
    return jax.tree.map(
      lambda into, new: into.at[:, at[0], :, at[1]].set(
        jnp.moveaxis(new.astype(into.dtype), (1, 3), (0, 1)),
        mode="promise_in_bounds",
        unique_indices=True,
      ),
      into,
      new,
    )
  return jax.tree.map(
    lambda into, new: jax.lax.dynamic_update_slice_in_dim(
      into, new.astype(into.dtype), start, 3
    ),
    into,
    new,
  )
