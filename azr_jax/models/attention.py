"""Scaled dot-product attention for grouped query heads, by backend name."""

from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

_HIDDEN = -1e30
AttentionFn = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def causal_mask(segment_ids: Int[Array, "B S"]) -> Bool[Array, "B S S"]:
  """Lets a token see itself and earlier tokens of its own sequence."""
  same = segment_ids[:, :, None] == segment_ids[:, None, :]
  return jnp.tril(same)


class KVCache(flax.struct.PyTreeNode):
  """Keys and values of every layer; entry t of a row is of position t.

  Attributes:
    k: [L, B, K, T, E]; T is a multiple of `chunk`.
    v: the same.
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
    k: [L, B, K, N, E]; without L where one layer reads it.
    v: the same.
    count: int32 [], entries that hold something.
  """

  k: Any
  v: Any
  count: Any


def init_cache(
  shape: tuple[int, int, int, int, int], dtype: Any, chunk: int
) -> KVCache:
  """An empty cache of shape [L, B, K, T, E], T padded to the chunk."""
  L, B, K, T, E = shape
  zeros = jnp.zeros((L, B, K, T + -T % chunk, E), dtype)
  return KVCache(zeros, zeros, jnp.zeros(B, jnp.int32), chunk)


def write_rows(
  cache: KVCache,
  k: Float[Array, "L B K S E"],
  v: Float[Array, "L B K S E"],
  start: Int[Array, " B"],
) -> KVCache:
  """Stores S entries of each row, from its own `start` on."""

  def write(row: jax.Array, new: jax.Array, start: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice(row, new, (0, 0, start, 0))

  rows = jax.vmap(write, in_axes=(1, 1, 0), out_axes=1)
  return cache.replace(k=rows(cache.k, k, start), v=rows(cache.v, v, start))


def write_at(
  into: Float[Array, "L B K T E"],
  new: Float[Array, "L B K S E"],
  start: Int[Array, ""],
) -> Float[Array, "L B K T E"]:
  """Stores S entries of each row, from the same `start` on."""
  zero = jnp.int32(0)
  return jax.lax.dynamic_update_slice(
    into, new.astype(into.dtype), (zero, zero, zero, start, zero)
  )


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

  def scores(k_BKTE: jax.Array, visible: jax.Array) -> jax.Array:
    scores_BKQT = jnp.einsum(
      "BKQE,BKTE->BKQT",
      q_BKQE,
      k_BKTE.astype(q.dtype),
      preferred_element_type=jnp.float32,
    )
    return jnp.where(visible, scores_BKQT, _HIDDEN)

  def attend(carry: Any, k_BKTE: Any, v_BKTE: Any, visible: Any) -> Any:
    maximum_BKQ, total_BKQ, sum_BKQE = carry
    scores_BKQT = scores(k_BKTE, visible)
    new_BKQ = jnp.maximum(maximum_BKQ, jnp.max(scores_BKQT, axis=-1))
    weights_BKQT = jnp.exp(scores_BKQT - new_BKQ[..., None])
    fade_BKQ = jnp.exp(maximum_BKQ - new_BKQ)
    added_BKQE = jnp.einsum(
      "BKQT,BKTE->BKQE",
      weights_BKQT.astype(q.dtype),
      v_BKTE.astype(q.dtype),
      preferred_element_type=jnp.float32,
    )
    return (
      new_BKQ,
      total_BKQ * fade_BKQ + jnp.sum(weights_BKQT, axis=-1),
      sum_BKQE * fade_BKQ[..., None] + added_BKQE,
    )

  def attend_chunk(index: jax.Array, carry: Any) -> Any:
    zero = jnp.int32(0)
    first = index * cache.chunk
    k_BKCE, v_BKCE = (
      jax.lax.dynamic_slice(
        x, (layer, zero, zero, first, zero), (1, B, K, cache.chunk, E)
      )[0]
      for x in (cache.k, cache.v)
    )
    places_C = first + jnp.arange(cache.chunk)
    seen_BC = places_C[None, :] < cache.length[:, None]
    return attend(carry, k_BKCE, v_BKCE, seen_BC[:, None, None])

  causal_QS = jnp.arange(S)[None, :] <= index_Q[:, None]
  carry = (
    jnp.full((B, K, G * S), _HIDDEN),
    jnp.zeros((B, K, G * S)),
    jnp.zeros((B, K, G * S, E)),
  )
  # A token sees itself, so the maximum is that of a real score from here on.
  carry = attend(
    carry, jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2), causal_QS[None, None]
  )
  if recent is not None:
    seen_N = jnp.arange(recent.k.shape[2]) < recent.count
    carry = attend(carry, recent.k, recent.v, seen_N[None, None, None])
  chunks = (jnp.max(cache.length) + cache.chunk - 1) // cache.chunk
  carry = jax.lax.fori_loop(0, chunks, attend_chunk, carry)
  _, total_BKQ, sum_BKQE = carry
  out_BKGSE = (sum_BKQE / total_BKQ[..., None]).reshape(B, K, G, S, E)
  return jnp.moveaxis(out_BKGSE, 3, 1).reshape(B, S, H, E).astype(q.dtype)


def xla_attention(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  segment_ids: Int[Array, "B S"],
) -> Float[Array, "B S H E"]:
  """Attention in plain XLA; scores and softmax are float32."""
  B, S, H, E = q.shape
  K = k.shape[2]
  q_BSKGE = q.reshape(B, S, K, H // K, E) * E**-0.5
  scores_BKGST = jnp.einsum(
    "BSKGE,BTKE->BKGST", q_BSKGE, k, preferred_element_type=jnp.float32
  )
  mask = causal_mask(segment_ids)[:, None, None]
  scores_BKGST = jnp.where(mask, scores_BKGST, _HIDDEN)
  weights_BKGST = jax.nn.softmax(scores_BKGST, axis=-1).astype(v.dtype)
  out_BSKGE = jnp.einsum("BKGST,BTKE->BSKGE", weights_BKGST, v)
  return out_BSKGE.reshape(B, S, H, E)


def cudnn_attention(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  segment_ids: Int[Array, "B S"],
) -> Float[Array, "B S H E"]:
  """cuDNN's flash attention, for NVIDIA GPUs; bfloat16 only."""
  mask = causal_mask(segment_ids)[:, None]
  return jax.nn.dot_product_attention(
    q, k, v, mask=mask, implementation="cudnn"
  )


BACKENDS: dict[str, AttentionFn] = {
  "xla": xla_attention,
  "cudnn": cudnn_attention,
}
