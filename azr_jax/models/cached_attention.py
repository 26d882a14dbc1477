"""Attention while sampling: to cached tokens in pages, and to newer tokens."""

import functools
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.experimental import layout
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, Num

from azr_jax.models import gpu_page_kernel, page_kernel, pages
from azr_jax.models.attention import MASK_VALUE
from azr_jax.models.pages import (
  Entries,
  LivePages,
  PagedCache,
  Pool,
  RecentKV,
  RowShares,
)
from azr_jax.parallel import mesh as mesh_lib


class CachedAttentionFn(Protocol):
  """Attention as `cached_attention` computes it, on any number of devices."""

  def __call__(
    self,
    q: Float[Array, "B S H E"],
    new: Entries,
    cache: PagedCache,
    recent: RecentKV | None,
    layer: Int[Array, ""],
    sinks: Float[Array, " H"] | None = None,
  ) -> Float[Array, "B S H E"]:
    """Returns the outputs; `cached_attention` says of what."""
    ...


# On a CPU, rows of similar length are read in blocks: at most `_BLOCKS` blocks,
# of at least `_BLOCK_ROWS` rows each. Accelerators read all rows together,
# because small operations are slow there.
_BLOCKS, _BLOCK_ROWS = 8, 8


class _Softmax(NamedTuple):
  """A softmax-weighted sum of values over the keys read so far."""

  maximum_BKQ: Float[Array, "B K Q"]
  total_BKQ: Float[Array, "B K Q"]
  sum_BKQE: Float[Array, "B K Q E"]


def make(
  mesh: Mesh, kv_heads: int, interpret: bool = False
) -> CachedAttentionFn:
  """Returns attention on a mesh that shards a cache's rows and pages.

  Args:
    mesh: the device mesh.
    kv_heads: K.
    interpret: run kernels in interpret mode on any device, for tests.
  """
  platform = mesh_lib.platform(mesh)
  attention = functools.partial(
    cached_attention, platform=platform, interpret=interpret
  )
  pool_spec: Any = mesh_lib.cache_sharding(mesh, kv_heads).spec
  by_row: Any = PartitionSpec(mesh_lib.BATCH_AXES)
  replicated: Any = PartitionSpec()
  by_head = PartitionSpec(mesh_lib.BATCH_AXES, None, pool_spec[2])
  entries_spec: Any = PartitionSpec(mesh_lib.BATCH_AXES, pool_spec[2])
  recent_spec: Any = PartitionSpec(None, *entries_spec)

  def attend(
    q: jax.Array,
    new: Entries,
    cache: PagedCache,
    recent: RecentKV | None,
    layer: jax.Array,
    sinks: jax.Array | None = None,
  ) -> jax.Array:
    of_cache = PagedCache(
      jax.tree.map(lambda _: pool_spec, cache.pool),
      by_row,
      by_row,
      by_row,
      jax.tree.map(lambda _: by_row, cache.live),
      None if cache.window is None else replicated,
    )
    of_recent = None
    if recent is not None:
      of_entries = jax.tree.map(lambda _: recent_spec, recent.entries)
      of_recent = RecentKV(
        of_entries, by_row if recent.count.ndim else replicated
      )
    return jax.shard_map(
      attention,
      mesh=mesh,
      in_specs=(
        by_head,
        entries_spec,
        of_cache,
        of_recent,
        replicated,
        PartitionSpec(pool_spec[2]),
      ),
      out_specs=by_head,
      check_vma=False,
    )(q, new, cache, recent, layer, sinks)

  return attend


def list_pages(
  pool: Pool,
  table: Int[Array, "B M"],
  length: Int[Array, " B"],
  platform: str,
  windows: tuple[int, ...] = (0,),
) -> LivePages | RowShares:
  """Returns the work list of the platform's kernel for one device's pages.

  If layers have several windows, these are a last axis of its arrays.

  Args:
    pool: the pages; only the shape matters.
    table: the pages of each row.
    length: number of filled entries of each row.
    platform: cpu, gpu or tpu. A CPU interprets the TPU kernel.
    windows: the distinct windows of the layers; 0 has none.
  """
  _, _, K, C, _ = pool.v.shape

  def of_window(window: int | None) -> LivePages | RowShares:
    if platform == "gpu":
      return gpu_page_kernel.row_shares(length, C, K, window)
    return page_kernel.live_pages(table, length, C, window)

  if not any(windows):
    return of_window(None)
  lists = [of_window(size or pages.NO_WINDOW) for size in windows]
  if len(lists) == 1:
    return lists[0]
  return jax.tree.map(lambda *x: jnp.stack(x, axis=-1), *lists)


@jax.named_scope("attend")
def cached_attention(
  q: Float[Array, "B S H E"],
  new: Entries,
  cache: PagedCache,
  recent: RecentKV | None,
  layer: Int[Array, ""],
  sinks: Float[Array, " H"] | None = None,
  platform: str = "cpu",
  interpret: bool = False,
) -> Float[Array, "B S H E"]:
  """Returns causal attention to these tokens and to cached earlier ones.

  All arrays belong to one device. Rows of similar length are read together, one
  page of each at a time, and the softmax is kept as a running maximum, sum of
  weights and weighted sum. The cost therefore grows with the number of live
  pages, not with the longest row. A row's result is bitwise independent of
  pages beyond its length and of other rows.

  The cache is not written here. A decode loop that wrote to it, at a different
  entry in each row, would copy it at every token. New entries therefore collect
  in `recent` and move to the cache once per call.

  Args:
    q: queries; scores and softmax are float32.
    new: keys and values of the same tokens.
    cache: keys and values of earlier tokens.
    recent: keys and values of tokens after the cache's and before these.
    layer: index of the layer in the cache.
    sinks: see `attention.AttentionFn`. The running softmax starts with them.
    platform: cpu, gpu or tpu.
    interpret: run the kernel in interpret mode on any device, for tests.
  """
  B, S, H, E = q.shape
  K = new.k.shape[1]
  G = H // K
  q_BSKGE = q.reshape(B, S, K, G, E)
  # Queries of a group differ only in their mask, so G and S merge: Q = G x S.
  q_BKQE = jnp.moveaxis(q_BSKGE, 1, 3).reshape(B, K, G * S, E)
  sinks_KQ = None
  if sinks is not None:
    sinks = sinks.astype(jnp.float32).reshape(K, G)
    sinks_KQ = jnp.repeat(sinks, S, axis=1)
  if isinstance(cache.live, RowShares) and recent is not None:
    out_BKQE = gpu_page_kernel.attend(
      *(q_BKQE, new, cache.pool, cache.table, cache.live, recent, layer),
      interpret=interpret,
      window=cache.window,
      sinks=sinks_KQ,
    )
  elif isinstance(cache.live, LivePages) and recent is not None:
    out_BKQE = page_kernel.attend(
      *(q_BKQE * E**-0.5, new, cache.pool, cache.live, recent, layer),
      interpret=interpret,
      window=cache.window,
      sinks=sinks_KQ,
    )
  else:
    q_BKQE *= E**-0.5
    index_Q = jnp.tile(jnp.arange(S), G)
    window = cache.window
    softmax = None if sinks_KQ is None else _of_sinks(sinks_KQ, q_BKQE)
    softmax = _attend_to_newer(
      softmax, q_BKQE, index_Q, new, recent, layer, window
    )
    lower_BQ = None
    if window is not None:
      count = 0 if recent is None else recent.count.reshape(-1, 1)
      lower_BQ = cache.length[:, None] + count + index_Q[None] + 1 - window
    softmax = _attend_to_pages(
      softmax, q_BKQE, cache, layer, platform, lower_BQ
    )
    out_BKQE = softmax.sum_BKQE / softmax.total_BKQ[..., None]
  out_BKGSE = out_BKQE.reshape(B, K, G, S, E)
  return jnp.moveaxis(out_BKGSE, 3, 1).reshape(B, S, H, E).astype(q.dtype)


def _of_sinks(
  sinks: Float[Array, "K Q"], q: Float[Array, "B K Q E"]
) -> _Softmax:
  """Returns the softmax over sinks alone, keys without values."""
  shape = q.shape[:3]
  maximum_BKQ = jnp.broadcast_to(sinks, shape)
  zeros_BKQE = jnp.zeros(q.shape, jnp.float32)
  return _Softmax(maximum_BKQ, jnp.ones(shape, jnp.float32), zeros_BKQE)


def _attend_to_newer(
  softmax: _Softmax | None,
  q: Float[Array, "B K Q E"],
  index_Q: Int[Array, " Q"],
  new: Entries,
  recent: RecentKV | None,
  layer: Int[Array, ""],
  window: Int[Array, ""] | None,
) -> _Softmax:
  """Adds the tokens that are not in the cache yet to the softmax.

  Args:
    softmax: the softmax so far. None if it is over nothing.
    index_Q: index of each query's token among the new tokens.
    new: keys and values of the new tokens.
    recent: tokens after the cache's and before the new ones.
    layer: index of the layer in `recent`.
    window: see `PagedCache`.
  """
  # Every token sees itself, so the running maximum starts at a visible score.
  last_BQ, newer = index_Q[None], new
  if recent is not None:
    # A single count applies to all rows.
    last_BQ = recent.count.reshape(-1, 1) + index_Q[None]
    entries = jax.tree.map(
      lambda x: jax.lax.dynamic_index_in_dim(x, layer), recent.entries
    )
    one_layer = jax.tree.map(lambda x: x[None], new)
    newer = pages.append(entries, one_layer, recent.count)
    newer = jax.tree.map(lambda x: x[0], newer)
  index_N = jnp.arange(newer.v.shape[2])[None, None]
  seen_BQN = index_N <= last_BQ[..., None]
  if window is not None:
    seen_BQN &= index_N > last_BQ[..., None] - window
  newer = newer.replace(k=jnp.swapaxes(newer.k, 2, 3))
  return _attend(softmax, q, newer, seen_BQN[:, None])


def _attend_to_pages(
  softmax: _Softmax,
  q: Float[Array, "B K Q E"],
  cache: PagedCache,
  layer: Int[Array, ""],
  platform: str,
  lower_BQ: Int[Array, "B Q"] | None,
) -> _Softmax:
  """Adds all cached keys to the softmax.

  Args:
    softmax: the softmax over the keys so far.
    q: queries of these rows.
    cache: the cache of the same rows.
    layer: index of the layer in the cache.
    platform: cpu, gpu or tpu.
    lower_BQ: the first entry in each query's window. None without windows.
  """
  rows = q.shape[0]
  size = block_rows(rows, platform)
  if size == rows:
    return _attend_block(
      *(softmax, q, cache.table, cache.length, lower_BQ),
      *(cache, layer, platform),
    )
  # After sorting, the rows of a block end at about the same page.
  order = cache.order
  q, table, length = q[order], cache.table[order], cache.length[order]
  softmax, lower_BQ = jax.tree.map(lambda x: x[order], (softmax, lower_BQ))

  def attend(block: jax.Array, whole: _Softmax) -> _Softmax:
    def of_block(array: jax.Array) -> jax.Array:
      return jax.lax.dynamic_slice_in_dim(array, block * size, size)

    part = _attend_block(
      jax.tree.map(of_block, whole),
      of_block(q),
      of_block(table),
      of_block(length),
      jax.tree.map(of_block, lower_BQ),
      cache,
      layer,
      platform,
    )
    return jax.tree.map(
      lambda into, new: jax.lax.dynamic_update_slice_in_dim(
        into, new, block * size, 0
      ),
      whole,
      part,
    )

  softmax = jax.lax.fori_loop(0, rows // size, attend, softmax)
  place = jnp.zeros_like(order).at[order].set(jnp.arange(rows))
  return jax.tree.map(lambda x: x[place], softmax)


def block_rows(rows: int, platform: str) -> int:
  """Returns the number of a device's rows that are read together."""
  if platform != "cpu":
    return rows
  least = max(_BLOCK_ROWS, -(-rows // _BLOCKS))
  fitting = (size for size in range(least, rows) if rows % size == 0)
  return next(fitting, rows)


def _attend_block(
  softmax: _Softmax,
  q: Float[Array, "B K Q E"],
  table: Int[Array, "B M"],
  length: Int[Array, " B"],
  lower_BQ: Int[Array, "B Q"] | None,
  cache: PagedCache,
  layer: Int[Array, ""],
  platform: str,
) -> _Softmax:
  """Adds the pages of some rows to their softmax.

  With a window, each row begins with the first page that its window reaches.
  """
  C = pages.entries_of_page(cache.pool)
  first_B = None
  if lower_BQ is not None:
    first_B = jnp.maximum(jnp.min(lower_BQ, axis=1), 0) // C

  def attend_page(number: jax.Array, softmax: _Softmax) -> _Softmax:
    if first_B is None:
      page_B = jax.lax.dynamic_index_in_dim(table, number, 1, keepdims=False)
      entry_C = number * C + jnp.arange(C)
      seen = entry_C[None, :] < length[:, None]
    else:
      number_B = first_B + number
      at = jnp.minimum(number_B, table.shape[1] - 1)
      page_B = jnp.take_along_axis(table, at[:, None], axis=1)[:, 0]
      entry_BC = number_B[:, None] * C + jnp.arange(C)[None]
      seen = (entry_BC < length[:, None])[:, None]
      assert lower_BQ is not None
      seen &= entry_BC[:, None] >= lower_BQ[..., None]
    return _attend(
      softmax,
      q,
      jax.tree.map(
        lambda pool: _read_pages(pool, layer, page_B, platform), cache.pool
      ),
      seen[:, None, None] if first_B is None else seen[:, None],
    )

  if first_B is None:
    longest = -(-jnp.max(length) // C)
  else:
    longest = jnp.max(-(-length // C) - first_B)
  return jax.lax.fori_loop(0, longest, attend_page, softmax)


def _read_pages(
  pool: Num[Array, "L P ..."],
  layer: Int[Array, ""],
  page_B: Int[Array, " B"],
  platform: str,
) -> Num[Array, "B ..."]:
  """Returns one page of one layer for each row."""
  page = pool.at[layer, page_B].get(mode="promise_in_bounds")
  if platform != "tpu":
    return page
  # Without this, the compiler transposes the whole pool instead of each page.
  return layout.with_layout_constraint(
    page, layout.Layout(tuple(range(page.ndim)))
  )


def _attend(
  softmax: _Softmax | None,
  q: Float[Array, "B K Q E"],
  read: Pool | Entries,
  visible: Bool[Array, "#B #K #Q T"],
) -> _Softmax:
  """Returns the running softmax after attending to more keys.

  Args:
    softmax: the softmax over the keys so far. None if there are none.
    read: keys [B, K, E, T] and values [B, K, T, E], perhaps with scales
      [B, K, T].
    visible: which keys each query sees.
  """
  scores_BKQT = jnp.einsum(
    "BKQE,BKET->BKQT",
    q,
    read.k.astype(q.dtype),
    preferred_element_type=jnp.float32,
  )
  if read.k_scale is not None:
    scores_BKQT *= read.k_scale[:, :, None]
  scores_BKQT = jnp.where(visible, scores_BKQT, MASK_VALUE)
  maximum_BKQ = jnp.max(scores_BKQT, axis=-1)
  if softmax is not None:
    maximum_BKQ = jnp.maximum(maximum_BKQ, softmax.maximum_BKQ)
  weights_BKQT = jnp.exp(scores_BKQT - maximum_BKQ[..., None])
  total_BKQ = jnp.sum(weights_BKQT, axis=-1)
  if read.v_scale is not None:
    weights_BKQT *= read.v_scale[:, :, None]
  sum_BKQE = jnp.einsum(
    "BKQT,BKTE->BKQE",
    weights_BKQT.astype(q.dtype),
    read.v.astype(q.dtype),
    preferred_element_type=jnp.float32,
  )
  if softmax is not None:
    scale_BKQ = jnp.exp(softmax.maximum_BKQ - maximum_BKQ)
    total_BKQ += softmax.total_BKQ * scale_BKQ
    sum_BKQE += softmax.sum_BKQE * scale_BKQ[..., None]
  return _Softmax(maximum_BKQ, total_BKQ, sum_BKQE)
