"""The key-value cache of sampling, and attention over it."""

from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from azr_jax.models.attention import HIDDEN_SCORE
from azr_jax.types import Leaf


class KVCache(flax.struct.PyTreeNode):
  """Keys and values of every layer; entry t of a row belongs to position t.

  Attributes:
    k: [L, B, K, E, T], the layout in which a query's product reads it; T is a
      multiple of `chunk`.
    v: [L, B, K, T, E].
    length: int32 [B], how many entries of each row are filled.
    chunk: entries that attention reads at a time.
  """

  k: Leaf
  v: Leaf
  length: Leaf
  chunk: int = flax.struct.field(pytree_node=False)


class RecentKV(flax.struct.PyTreeNode):
  """Keys and values of the N tokens after a cache's, aligned in all rows.

  Attributes:
    k: [L, B, K, E, N]; within one layer, without L.
    v: [L, B, K, N, E]; within one layer, without L.
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


def write_rows(
  cache: KVCache,
  k: Float[Array, "L B K E S"],
  v: Float[Array, "L B K S E"],
  start: Int[Array, " B"],
) -> KVCache:
  """Stores S entries of each row, beginning at that row's `start`.

  Args:
    cache: the cache to write to; its lengths stay as they are.
    k: keys in the cache's layout.
    v: values in the cache's layout.
    start: the first entry to write, per row.
  """

  def write_row(
    cache_k: Float[Array, "L K E T"],
    cache_v: Float[Array, "L K T E"],
    k: Float[Array, "L K E S"],
    v: Float[Array, "L K S E"],
    start: Int[Array, ""],
  ) -> tuple[jax.Array, jax.Array]:
    return write_at(
      cache_k[:, None], cache_v[:, None], k[:, None], v[:, None], start
    )

  write = jax.vmap(write_row, in_axes=(1, 1, 1, 1, 0), out_axes=1)
  new_k, new_v = write(cache.k, cache.v, k, v, start)
  return cache.replace(k=new_k[:, :, 0], v=new_v[:, :, 0])


def write_at(
  into_k: Float[Array, "L B K E T"],
  into_v: Float[Array, "L B K T E"],
  k: Float[Array, "L B K E S"],
  v: Float[Array, "L B K S E"],
  start: Int[Array, ""],
) -> tuple[jax.Array, jax.Array]:
  """Returns keys and values with S entries of every row stored at `start`."""
  zero = jnp.int32(0)
  k, v = k.astype(into_k.dtype), v.astype(into_v.dtype)
  return (
    jax.lax.dynamic_update_slice(into_k, k, (zero, zero, zero, zero, start)),
    jax.lax.dynamic_update_slice(into_v, v, (zero, zero, zero, start, zero)),
  )


def by_entry(
  k: Float[Array, "B S K E"], v: Float[Array, "B S K E"]
) -> tuple[Float[Array, "B K E S"], Float[Array, "B K S E"]]:
  """Returns keys and values in the layout of a cache."""
  return jnp.moveaxis(k, 1, 3), jnp.swapaxes(v, 1, 2)


class _Softmax(NamedTuple):
  """A softmax-weighted sum of values over the keys that were read so far."""

  maximum_BKQ: jax.Array
  total_BKQ: jax.Array
  sum_BKQE: jax.Array


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
  k_BKES, v_BKSE = by_entry(k, v)
  if recent is None:
    causal_QS = jnp.arange(S)[None, :] <= index_Q[:, None]
    softmax = _attend(None, q_BKQE, k_BKES, v_BKSE, causal_QS[None, None])
  else:
    recent_k, recent_v = write_at(
      recent.k[None], recent.v[None], k_BKES[None], v_BKSE[None], recent.count
    )
    last_Q = recent.count + index_Q
    seen_QN = jnp.arange(recent.v.shape[2])[None, :] <= last_Q[:, None]
    softmax = _attend(
      None, q_BKQE, recent_k[0], recent_v[0], seen_QN[None, None]
    )

  def attend_chunk(index: jax.Array, softmax: _Softmax) -> _Softmax:
    k_BKEC, v_BKCE, seen_BC = _read_chunk(cache, layer, index)
    return _attend(softmax, q_BKQE, k_BKEC, v_BKCE, seen_BC[:, None, None])

  chunks = (jnp.max(cache.length) + cache.chunk - 1) // cache.chunk
  softmax = jax.lax.fori_loop(0, chunks, attend_chunk, softmax)
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
