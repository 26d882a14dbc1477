"""The key-value cache of sampling, and attention over it."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

_HIDDEN = -1e30


class KVCache(flax.struct.PyTreeNode):
  """Keys and values of every layer; entry t of a row is of position t.

  Attributes:
    k: [L, B, K, E, T], as the product with a query reads it; T is a multiple
      of `chunk`.
    v: [L, B, K, T, E].
    length: int32 [B], entries of each row that hold something.
    chunk: entries that attention reads at a time.
  """

  k: Any
  v: Any
  length: Any
  chunk: int = flax.struct.field(pytree_node=False)


class RecentKV(flax.struct.PyTreeNode):
  """Keys and values that follow a cache's, at the same place in every row.

  Attributes:
    k: [L, B, K, E, N]; without L where one layer reads it.
    v: [L, B, K, N, E].
    count: int32 [], entries that hold something.
  """

  k: Any
  v: Any
  count: Any


def init_cache(
  shape: tuple[int, int, int, int, int], dtype: Any, chunk: int
) -> KVCache:
  """An empty cache; the shape is L, B, K, T, E, with T padded to the chunk."""
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
  """Stores S entries of each row, from its own `start` on."""

  def write(cache_k: Any, cache_v: Any, k: Any, v: Any, start: Any) -> Any:
    return write_at(
      cache_k[:, None], cache_v[:, None], k[:, None], v[:, None], start
    )

  rows = jax.vmap(write, in_axes=(1, 1, 1, 1, 0), out_axes=1)
  new_k, new_v = rows(cache.k, cache.v, k, v, start)
  return cache.replace(k=new_k[:, :, 0], v=new_v[:, :, 0])


def write_at(
  into_k: Float[Array, "L B K E T"],
  into_v: Float[Array, "L B K T E"],
  k: Float[Array, "L B K E S"],
  v: Float[Array, "L B K S E"],
  start: Int[Array, ""],
) -> tuple[jax.Array, jax.Array]:
  """Stores S entries of each row, from the same `start` on."""
  zero = jnp.int32(0)
  k, v = k.astype(into_k.dtype), v.astype(into_v.dtype)
  return (
    jax.lax.dynamic_update_slice(into_k, k, (zero, zero, zero, zero, start)),
    jax.lax.dynamic_update_slice(into_v, v, (zero, zero, zero, start, zero)),
  )


def by_entry(
  k: Float[Array, "B S K E"], v: Float[Array, "B S K E"]
) -> tuple[Float[Array, "B K E S"], Float[Array, "B K S E"]]:
  """Lays keys and values out as a cache holds them."""
  return jnp.moveaxis(k, 1, 3), jnp.swapaxes(v, 1, 2)


def cached_attention(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  cache: KVCache,
  recent: RecentKV | None,
  layer: Int[Array, ""],
) -> Float[Array, "B S H E"]:
  """Causal attention to these tokens and to what is kept of earlier ones.

  The cache is read in chunks, as far as any row needs (the softmax is kept as
  running maximum, sum and average), so that the cost grows with the live length
  and not with the room. A chunk that a row does not see changes nothing in it,
  to the last bit.

  The cache is only read. If the decode loop wrote into it, at another place in
  each row, it would be copied at every token; so new entries gather in `recent`
  and are moved to the cache once per call.

  Args:
    q: queries; scores and softmax are float32.
    k: keys of the same tokens.
    v: values of the same tokens.
    cache: earlier tokens' keys and values.
    recent: this layer's, of the tokens between the cache's and these.
    layer: which layer of the cache to read.
  """
  B, S, H, E = q.shape
  K = k.shape[2]
  G = H // K
  q_BSKGE = q.reshape(B, S, K, G, E) * E**-0.5
  # Queries of a group are told apart only by the mask: one axis, Q = G x S.
  q_BKQE = jnp.moveaxis(q_BSKGE, 1, 3).reshape(B, K, G * S, E)
  index_Q = jnp.tile(jnp.arange(S), G)

  def attend(carry: Any, k_BKET: Any, v_BKTE: Any, visible: Any) -> Any:
    scores_BKQT = jnp.einsum(
      "BKQE,BKET->BKQT",
      q_BKQE,
      k_BKET.astype(q.dtype),
      preferred_element_type=jnp.float32,
    )
    scores_BKQT = jnp.where(visible, scores_BKQT, _HIDDEN)
    maximum_BKQ = jnp.max(scores_BKQT, axis=-1)
    if carry is not None:
      maximum_BKQ = jnp.maximum(maximum_BKQ, carry[0])
    weights_BKQT = jnp.exp(scores_BKQT - maximum_BKQ[..., None])
    total_BKQ = jnp.sum(weights_BKQT, axis=-1)
    sum_BKQE = jnp.einsum(
      "BKQT,BKTE->BKQE",
      weights_BKQT.astype(q.dtype),
      v_BKTE.astype(q.dtype),
      preferred_element_type=jnp.float32,
    )
    if carry is not None:
      fade_BKQ = jnp.exp(carry[0] - maximum_BKQ)
      total_BKQ += carry[1] * fade_BKQ
      sum_BKQE += carry[2] * fade_BKQ[..., None]
    return maximum_BKQ, total_BKQ, sum_BKQE

  def attend_chunk(index: jax.Array, carry: Any) -> Any:
    zero = jnp.int32(0)
    first = index * cache.chunk
    k_BKEC = jax.lax.dynamic_slice(
      cache.k, (layer, zero, zero, zero, first), (1, B, K, E, cache.chunk)
    )[0]
    v_BKCE = jax.lax.dynamic_slice(
      cache.v, (layer, zero, zero, first, zero), (1, B, K, cache.chunk, E)
    )[0]
    places_C = first + jnp.arange(cache.chunk)
    seen_BC = places_C[None, :] < cache.length[:, None]
    return attend(carry, k_BKEC, v_BKCE, seen_BC[:, None, None])

  # A token sees itself: the first maximum is already that of a real score.
  k_BKES, v_BKSE = by_entry(k, v)
  if recent is None:
    causal_QS = jnp.arange(S)[None, :] <= index_Q[:, None]
    carry = attend(None, k_BKES, v_BKSE, causal_QS[None, None])
  else:
    recent_k, recent_v = write_at(
      recent.k[None], recent.v[None], k_BKES[None], v_BKSE[None], recent.count
    )
    last_Q = recent.count + index_Q
    seen_QN = jnp.arange(recent.v.shape[2])[None, :] <= last_Q[:, None]
    carry = attend(None, recent_k[0], recent_v[0], seen_QN[None, None])
  chunks = (jnp.max(cache.length) + cache.chunk - 1) // cache.chunk
  carry = jax.lax.fori_loop(0, chunks, attend_chunk, carry)
  _, total_BKQ, sum_BKQE = carry
  out_BKGSE = (sum_BKQE / total_BKQ[..., None]).reshape(B, K, G, S, E)
  return jnp.moveaxis(out_BKGSE, 3, 1).reshape(B, S, H, E).astype(q.dtype)
