"""The KV cache of sampling, in the pages of a pool.

Entry t of a row holds position t and lies in page `table[row, t // C]`, with C
entries per page. Rows may share the pages of a common prefix. On several
devices, the pool is sharded like the rows, and a table holds indices into its
own device's pages.

Keys and values may have 8 bits (`quantization.py`). Then each token has a scale
per key head, and is rounded once, when it is computed. A token attends to the
same values whether or not they are in pages yet, so results do not depend on
where decode calls start.

Axis letters are defined in `types.py`.
"""

from typing import TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Float32, Int, Int32, Num, UInt

from azr_jax.models import quantization
from azr_jax.models.config import ExpertShape
from azr_jax.types import Leaf

# Pages or entries.
Contents = TypeVar("Contents", "Pool", "Entries")
# The window of a layer without one, where others have one.
NO_WINDOW = 1 << 30
# The token axis of each array in a `Pool`.
_TOKEN_AXES = (4, 3, 3, 3, 3)


class Pool(flax.struct.PyTreeNode):
  """Keys and values in pages.

  Attributes:
    k: keys, in the layout that the product with queries reads.
    v: values, in the layout that the product with softmax weights reads.
    k_scale: scales of 8-bit keys. None for other dtypes.
    v_scale: scales of the values, like `k_scale`.
    experts: the experts of each token, for router replay; None without. A
      token's choices are split over the key heads, so that this array lies on
      the devices like the others. The last head may have padding.
  """

  k: Num[Leaf, "L P K E C"]
  v: Num[Leaf, "L P K C E"]
  k_scale: Float32[Leaf, "L P K C"] | None = None
  v_scale: Float32[Leaf, "L P K C"] | None = None
  experts: UInt[Leaf, "L P K C share"] | None = None


class Entries(flax.struct.PyTreeNode):
  """Keys and values of S tokens, of one layer or, with a leading L, of all.

  Attributes:
    k: keys, in the pool's dtype.
    v: values, like `k`.
    k_scale: scales of the keys. None as in `Pool`.
    v_scale: scales of the values, like `k_scale`.
    experts: the tokens' experts, as in `Pool`.
  """

  k: Num[Leaf, "*L B K S E"]
  v: Num[Leaf, "*L B K S E"]
  k_scale: Float32[Leaf, "*L B K S"] | None = None
  v_scale: Float32[Leaf, "*L B K S"] | None = None
  experts: UInt[Leaf, "*L B K S share"] | None = None


class PagedCache(flax.struct.PyTreeNode):
  """The cached tokens of some rows, as attention reads them.

  Attributes:
    pool: keys and values in pages.
    table: the pages of each row; arbitrary past a row's end.
    length: number of filled entries of each row.
    order: the rows of each device, longest first; from `by_length`.
    live: work list for `page_kernel.py` (TPU) or `gpu_page_kernel.py`. None
      makes attention loop over the pages of the longest row. If layers have
      different windows, leaves end with an axis for these (`of_window`).
    window: number of tokens that a token attends to, including itself. None:
      all earlier ones.
  """

  pool: Pool
  table: Int32[Leaf, "B M"]
  length: Int32[Leaf, " B"]
  order: Int32[Leaf, " B"]
  live: "LivePages | RowShares | None" = None
  window: Int32[Leaf, ""] | None = None


class LivePages(flax.struct.PyTreeNode):
  """The pages of each device that hold entries, row by row.

  Attributes:
    page: the index of each page in the device's pool; 0 past `count`.
    row: the row that reads the page; the number of rows past `count`.
    seen: number of filled entries in the page.
    count: number of live pages.
    hidden: number of entries of the page before the window of the row's next
      token, perhaps negative. None without windows.
  """

  page: Int32[Leaf, "*W"]
  row: Int32[Leaf, "*W"]
  seen: Int32[Leaf, "*W"]
  count: Int32[Leaf, "*one"]
  hidden: Int32[Leaf, "*W"] | None = None


class RowShares(flax.struct.PyTreeNode):
  """Shares of the filled entries of each device's rows, row by row.

  Attributes:
    row: the row of each share.
    start: the first entry of each share.
    end: one past the last entry; shares past the last one are empty.
    first: the first share of each row, followed by the number of shares.
    lower: the first entry in the window of the row's next token, perhaps
      negative. None without windows.
  """

  row: Int32[Leaf, "*W"]
  start: Int32[Leaf, "*W"]
  end: Int32[Leaf, "*W"]
  first: Int32[Leaf, "*ends"]
  lower: Int32[Leaf, "*W"] | None = None


class RecentKV(flax.struct.PyTreeNode):
  """Keys and values of the S tokens after a cache's.

  Attributes:
    entries: keys and values of all layers.
    count: number of filled entries; by row if it differs, as with drafts.
  """

  entries: Entries
  count: Int32[Leaf, "*B"]


def of_window(
  cache: PagedCache,
  windows: tuple[int, ...],
  index: Int32[np.ndarray, ""] | Int32[Array, ""] | None,
) -> PagedCache:
  """Returns a cache as a layer with one of the windows reads it.

  Args:
    cache: the cache as all layers share it.
    windows: the distinct windows of the layers; 0 has none.
    index: index of the layer's window. None if all layers have the same.
  """
  if not any(windows):
    return cache
  sizes = jnp.asarray([size or NO_WINDOW for size in windows], jnp.int32)
  if index is None:
    return cache.replace(window=sizes[0])
  live = jax.tree.map(lambda x: x[..., index], cache.live)
  return cache.replace(window=sizes[index], live=live)


def init_pool(
  shape: tuple[int, int, int, int, int],
  dtype: DTypeLike,
  experts: ExpertShape | None = None,
) -> Pool:
  """Returns empty pages.

  Args:
    shape: L, P, K, C and E.
    dtype: dtype of keys and values.
    experts: the layers' experts, if pages keep those of each token.
  """
  L, P, K, C, E = shape
  k, v = jnp.zeros((L, P, K, E, C), dtype), jnp.zeros((L, P, K, C, E), dtype)
  scale = chosen = None
  if quantization.is_quantized(dtype):
    scale = jnp.zeros((L, P, K, C), jnp.float32)
  if experts is not None:
    share = -(-experts.per_token // K)
    chosen = jnp.zeros((L, P, K, C, share), experts.index_dtype)
  return Pool(k, v, scale, scale, chosen)


def without_experts(arrays: Contents) -> Contents:
  """Returns the pages or entries that attention reads."""
  return arrays.replace(experts=None)


def with_experts(
  new: Entries, chosen: Int[Array, "B S choices"], pool: Pool
) -> Entries:
  """Returns the entries of new tokens with their experts, if a pool has any.

  Args:
    new: keys and values of one layer.
    chosen: the tokens' experts in this layer.
    pool: the pool that will hold the entries.
  """
  if pool.experts is None:
    return new
  _, _, K, _, share = pool.experts.shape
  B, S, choices = chosen.shape
  chosen = jnp.pad(chosen, ((0, 0), (0, 0), (0, K * share - choices)))
  by_head = chosen.reshape(B, S, K, share).astype(pool.experts.dtype)
  return new.replace(experts=jnp.swapaxes(by_head, 1, 2))


def read_experts(
  pool: Pool, table: Int[Array, "B M"]
) -> UInt[Array, "B entries L K share"]:
  """Returns the experts of the tokens in some rows' pages, on one device.

  Args:
    pool: the device's pages.
    table: the pages of each row.
  """
  assert pool.experts is not None
  L, _, K, C, share = pool.experts.shape
  B, M = table.shape
  found = jnp.moveaxis(pool.experts[:, table], (1, 2, 4, 0), (0, 1, 2, 3))
  return found.reshape(B, M * C, L, K, share)


def entries_of_page(pool: Pool) -> int:
  """Returns C, the number of entries per page."""
  return pool.v.shape[3]


def make_entries(
  k: Float[Array, "B S K E"], v: Float[Array, "B S K E"], pool: Pool
) -> Entries:
  """Returns the keys and values of new tokens, in a pool's dtype."""
  k, v = jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2)
  if pool.k_scale is None:
    return Entries(k, v)
  # Quantizing both in one operation halves the cost per token and layer.
  kv, scale = quantization.quantize(jnp.stack([k, v]), pool.k.dtype, axes=(4,))
  return Entries(kv[0], kv[1], scale[0], scale[1])


def no_entries(pool: Pool, rows: int, tokens: int) -> Entries:
  """Returns empty entries of all layers.

  Args:
    pool: the pool whose dtypes the entries take.
    rows: B.
    tokens: S, the tokens per row.
  """
  L, _, K, _, E = pool.v.shape
  room = jnp.zeros((L, rows, K, tokens, E), pool.v.dtype)
  scale = experts = None
  if pool.k_scale is not None:
    scale = jnp.zeros((L, rows, K, tokens), jnp.float32)
  if pool.experts is not None:
    share = pool.experts.shape[-1]
    experts = jnp.zeros((L, rows, K, tokens, share), pool.experts.dtype)
  return Entries(room, room, scale, scale, experts)


def by_length(length: Int[Array, " B"]) -> Int[Array, " B"]:
  """Returns the rows of one device, longest first."""
  return jnp.argsort(-length).astype(jnp.int32)


@jax.named_scope("cache_write")
def write_entries(
  pool: Pool,
  new: Entries,
  table: Int[Array, "B M"],
  starts: Int[Array, " B"],
  counts: Int[Array, " B"],
) -> Pool:
  """Writes new entries of some rows into their pages, on one device.

  Pages are read, changed and written in place, one at a time, because a scatter
  to all of them would copy the whole pool. On a mesh, call this on each
  device's own rows (`jax.shard_map`).

  Args:
    pool: the device's pages.
    new: keys and values of S tokens, in all layers.
    table: the pages of each row.
    starts: the position of the first new entry of each row.
    counts: number of the S entries to write in each row.
  """
  C = entries_of_page(pool)

  def write_row(row: jax.Array, pool: Pool) -> Pool:
    start, end = starts[row], starts[row] + counts[row]
    of_row = jax.tree.map(
      lambda x: jax.lax.dynamic_index_in_dim(x, row, 1),
      new.replace(k=jnp.swapaxes(new.k, 3, 4)),
    )
    # Padded so that a page-aligned slice exists for every page.
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


def _with_token_axes(
  arrays: Pool | Entries,
) -> list[tuple[Num[Array, "L _ K ..."], int]]:
  """Returns each array, laid out as in a pool, with its token axis."""
  return list(zip(jax.tree.leaves(arrays), _TOKEN_AXES, strict=False))


def _change_page(
  pool: Pool,
  page: Int[Array, ""],
  fresh: list[Num[Array, "L 1 K ..."]],
  is_new: Bool[Array, " C"],
) -> Pool:
  """Writes the new entries of one page."""
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
  """Copies pages to other pages, on one device.

  Args:
    pool: the device's pages.
    sources: pages to copy.
    targets: pages to overwrite.
    count: number of leading pairs to copy.
  """

  def copy(index: jax.Array, pool: Pool) -> Pool:
    def copy_of(array: jax.Array) -> jax.Array:
      page = jax.lax.dynamic_index_in_dim(array, sources[index], 1)
      return jax.lax.dynamic_update_index_in_dim(array, page, targets[index], 1)

    return jax.tree.map(copy_of, pool)

  return jax.lax.fori_loop(0, count, copy, pool)


@jax.named_scope("cache_write")
def append(
  into: Entries, new: Entries, start: Int[Array, ""] | Int[Array, " B"]
) -> Entries:
  """Returns entries of all layers with S new tokens stored at `start`.

  Args:
    into: the entries to write to.
    new: entries of the new tokens.
    start: index of the first new token, for all rows or per row.
  """
  if start.ndim:
    # A scatter by row and token. XLA's partitioner rejects the equivalent
    # batched scatter of slices on several GPUs.
    B, S = start.shape[0], new.v.shape[3]
    at = jnp.arange(B)[:, None], start[:, None] + jnp.arange(S)[None]
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
