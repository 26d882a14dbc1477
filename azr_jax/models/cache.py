"""The key-value cache of sampling, and attention over it."""

from typing import NamedTuple, TypeAlias

import flax.struct
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from azr_jax.models.attention import HIDDEN_SCORE
from azr_jax.types import Leaf

# Keys [L, B, K, E, T] and values [L, B, K, T, E].
KV: TypeAlias = tuple[jax.Array, jax.Array]


class KVCache(flax.struct.PyTreeNode):
  """Keys and values of every layer; entry t of a row belongs to position t.

  Attributes:
    k: [L, B, K, E, T], the layout in which a query's product reads it; T is a
      multiple of `chunk`.
    v: [L, B, K, T, E].
    length: int32 [B], how many entries of each row are filled.
    chunk: entries that attention reads at a time.
    chunks: int32 [], how many chunks reach the end of the longest row, within
      the decoder; None: they are counted when they are read.
  """

  k: Leaf
  v: Leaf
  length: Leaf
  chunk: int = flax.struct.field(pytree_node=False)
  chunks: Leaf | None = None

  def counted(self) -> "KVCache":
    """Returns the cache with its chunks counted, once for all layers.

    Rows lie on several devices, so each count is a collective.
    """
    longest = jnp.max(self.length)
    return self.replace(chunks=(longest + self.chunk - 1) // self.chunk)


class RecentKV(flax.struct.PyTreeNode):
  """Keys and values of the N tokens after a cache's, aligned in all rows.

  Attributes:
    k: [L, B, K, N, E]; within one layer, without L.
    v: the same.
    count: int32 [], how many entries are filled; within the scan over layers,
      [L].
  """

  k: Leaf
  v: Leaf
  count: Leaf


def init_cache(
  shape: tuple[int, int, int, int, int], dtype: DTypeLike, chunk: int
) -> KVCache:
  """Returns an empty cache.

  Args:
    shape: L, B, K, T and E; T is rounded up to a multiple of the chunk.
    dtype: the type of keys and values.
    chunk: entries that attention reads at a time.
  """
  L, B, K, T, E = shape
  T += -T % chunk
  return KVCache(
    jnp.zeros((L, B, K, E, T), dtype),
    jnp.zeros((L, B, K, T, E), dtype),
    jnp.zeros(B, jnp.int32),
    chunk,
  )


@jax.named_scope("cache_write")
def store_entries(
  whole: KV,
  new: KV,
  rows: Int[Array, " entries"],
  starts: Int[Array, " entries"],
  counts: Int[Array, " entries"],
) -> KV:
  """Writes new entries into rows of a cache, and nothing else of these rows.

  A row at a time is written in place. A scatter to all rows at once would
  transpose the whole cache there and back, and does not compile for several
  GPUs. On a mesh, call it on each device's own rows (`jax.shard_map`).

  Args:
    whole: keys [L, B, K, E, T] and values [L, B, K, T, E].
    new: keys and values [L, entries, K, S, E].
    rows: the row of each entry of `new`.
    starts: the first position to write in each of these rows.
    counts: rows of which this is 0 are left as they are; the others are
      written in S entries, of which the caller counts the first so many.
  """

  new_k, new_v = new
  by_corner = jnp.swapaxes(new_k, 3, 4), new_v

  def store_row(index: jax.Array, whole: KV) -> KV:
    row, start, zero = rows[index], starts[index], jnp.int32(0)
    corners = (
      (zero, row, zero, zero, start),
      (zero, row, zero, start, zero),
    )
    stored = []
    for into, source, corner in zip(whole, by_corner, corners, strict=True):
      fresh = jax.lax.dynamic_index_in_dim(source, index, 1).astype(into.dtype)
      old = jax.lax.dynamic_slice(into, corner, fresh.shape)
      kept = jnp.where(counts[index] > 0, fresh, old)
      stored.append(jax.lax.dynamic_update_slice(into, kept, corner))
    k, v = stored
    return k, v

  return jax.lax.fori_loop(0, rows.shape[0], store_row, whole)


@jax.named_scope("cache_write")
def write_at(
  whole: KV,
  k: Float[Array, "L B K S E"],
  v: Float[Array, "L B K S E"],
  start: Int[Array, ""],
) -> KV:
  """Returns a cache's arrays with S entries of every row stored at `start`."""
  into_k, into_v = whole
  zero = jnp.int32(0)
  k = jnp.swapaxes(k, 3, 4).astype(into_k.dtype)
  at = (zero, zero, zero, zero, start)
  return jax.lax.dynamic_update_slice(into_k, k, at), append(into_v, v, start)


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


class _Softmax(NamedTuple):
  """A softmax-weighted sum of values over the keys that were read so far."""

  maximum_BKQ: jax.Array
  total_BKQ: jax.Array
  sum_BKQE: jax.Array


@jax.named_scope("attend")
def cached_attention(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  cache: KVCache,
  recent: RecentKV | None,
  layer: Int[Array, ""],
) -> Float[Array, "B S H E"]:
  """Returns causal attention to these tokens and to cached earlier ones.

  The cache is read in chunks, up to the longest row, and the softmax is kept as
  a running maximum, sum of weights and weighted sum. The cost therefore grows
  with the filled length, not with T. A chunk beyond a row's length does not
  change that row's result, to the last bit.

  The cache is not written here. A decode loop that wrote to it, at a different
  entry in each row, would copy it at every token. New entries therefore gather
  in `recent` and move to the cache once per call.

  Args:
    q: queries; scores and softmax are float32.
    k: keys of the same tokens.
    v: values of the same tokens.
    cache: earlier tokens' keys and values.
    recent: this layer's keys and values of the tokens between the cache's and
      these.
    layer: which layer of the cache to read.
  """
  B, S, H, E = q.shape
  K = k.shape[2]
  G = H // K
  q_BSKGE = q.reshape(B, S, K, G, E) * E**-0.5
  # Only the mask tells the queries of a group apart: one axis, Q = G x S.
  q_BKQE = jnp.moveaxis(q_BSKGE, 1, 3).reshape(B, K, G * S, E)
  index_Q = jnp.tile(jnp.arange(S), G)

  # Every token sees itself, so the first maximum is that of a visible score.
  recent_k, recent_v = by_entry(k, v)
  last_Q = index_Q
  if recent is not None:
    last_Q = recent.count + index_Q
    recent_k, recent_v = (
      append(into[None], new[None], recent.count)[0]
      for into, new in ((recent.k, recent_k), (recent.v, recent_v))
    )
  seen_QN = jnp.arange(recent_v.shape[2])[None, :] <= last_Q[:, None]
  recent_k = jnp.swapaxes(recent_k, 2, 3)
  softmax = _attend(None, q_BKQE, recent_k, recent_v, seen_QN[None, None])

  def attend_chunk(index: jax.Array, softmax: _Softmax) -> _Softmax:
    k_BKEC, v_BKCE, seen_BC = _read_chunk(cache, layer, index)
    return _attend(softmax, q_BKQE, k_BKEC, v_BKCE, seen_BC[:, None, None])

  if cache.chunks is None:
    cache = cache.counted()
  softmax = jax.lax.fori_loop(0, cache.chunks, attend_chunk, softmax)
  out_BKQE = softmax.sum_BKQE / softmax.total_BKQ[..., None]
  out_BKGSE = out_BKQE.reshape(B, K, G, S, E)
  return jnp.moveaxis(out_BKGSE, 3, 1).reshape(B, S, H, E).astype(q.dtype)


def _read_chunk(
  cache: KVCache, layer: Int[Array, ""], index: Int[Array, ""]
) -> tuple[
  Float[Array, "B K E C"], Float[Array, "B K C E"], Bool[Array, "B C"]
]:
  """Returns a chunk's keys, values, and which of its entries are filled."""
  _, B, K, E, _ = cache.k.shape
  zero = jnp.int32(0)
  first = index * cache.chunk
  k_BKEC = jax.lax.dynamic_slice(
    cache.k, (layer, zero, zero, zero, first), (1, B, K, E, cache.chunk)
  )[0]
  v_BKCE = jax.lax.dynamic_slice(
    cache.v, (layer, zero, zero, first, zero), (1, B, K, cache.chunk, E)
  )[0]
  entry_C = first + jnp.arange(cache.chunk)
  return k_BKEC, v_BKCE, entry_C[None, :] < cache.length[:, None]


def _attend(
  softmax: _Softmax | None,
  q: Float[Array, "B K Q E"],
  k: Float[Array, "B K E T"],
  v: Float[Array, "B K T E"],
  visible: Bool[Array, "#B #K #Q T"],
) -> _Softmax:
  """Returns the softmax over the keys so far and these; None: only these."""
  scores_BKQT = jnp.einsum(
    "BKQE,BKET->BKQT",
    q,
    k.astype(q.dtype),
    preferred_element_type=jnp.float32,
  )
  scores_BKQT = jnp.where(visible, scores_BKQT, HIDDEN_SCORE)
  maximum_BKQ = jnp.max(scores_BKQT, axis=-1)
  if softmax is not None:
    maximum_BKQ = jnp.maximum(maximum_BKQ, softmax.maximum_BKQ)
  weights_BKQT = jnp.exp(scores_BKQT - maximum_BKQ[..., None])
  total_BKQ = jnp.sum(weights_BKQT, axis=-1)
  sum_BKQE = jnp.einsum(
    "BKQT,BKTE->BKQE",
    weights_BKQT.astype(q.dtype),
    v.astype(q.dtype),
    preferred_element_type=jnp.float32,
  )
  if softmax is not None:
    scale_BKQ = jnp.exp(softmax.maximum_BKQ - maximum_BKQ)
    total_BKQ += softmax.total_BKQ * scale_BKQ
    sum_BKQE += softmax.sum_BKQE * scale_BKQ[..., None]
  return _Softmax(maximum_BKQ, total_BKQ, sum_BKQE)
