"""Scaled dot-product attention for grouped query heads, by backend name."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

AttentionFn = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def causal_mask(
  positions: Int[Array, "B S"], segment_ids: Int[Array, "B S"]
) -> Bool[Array, "B S S"]:
  """Lets a token see itself and earlier tokens of its own sequence."""
  same = segment_ids[:, :, None] == segment_ids[:, None, :]
  return same & (positions[:, :, None] >= positions[:, None, :])


def cache_mask(
  positions: Int[Array, "B S"], cache_length: int
) -> Bool[Array, "B S T"]:
  """Lets a token see every cache entry up to its own position.

  Cache entry t of a row always holds position t, so what a padded prefill
  wrote past a row's end stays hidden until decoding overwrites it.
  """
  return jnp.arange(cache_length)[None, None, :] <= positions[:, :, None]


def xla_attention(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B T K E"],
  v: Float[Array, "B T K E"],
  mask: Bool[Array, "B S T"],
) -> Float[Array, "B S H E"]:
  """Attention in plain XLA; scores and softmax are float32."""
  B, S, H, E = q.shape
  K = k.shape[2]
  q_BSKGE = q.reshape(B, S, K, H // K, E) * E**-0.5
  scores_BKGST = jnp.einsum(
    "BSKGE,BTKE->BKGST", q_BSKGE, k, preferred_element_type=jnp.float32
  )
  scores_BKGST = jnp.where(mask[:, None, None], scores_BKGST, -1e30)
  weights_BKGST = jax.nn.softmax(scores_BKGST, axis=-1).astype(v.dtype)
  out_BSKGE = jnp.einsum("BKGST,BTKE->BSKGE", weights_BKGST, v)
  return out_BSKGE.reshape(B, S, H, E)


def _library_attention(
  q: jax.Array,
  k: jax.Array,
  v: jax.Array,
  mask: jax.Array,
  *,
  implementation: Any,
) -> jax.Array:
  return jax.nn.dot_product_attention(
    q, k, v, mask=mask[:, None], implementation=implementation
  )


BACKENDS: dict[str, AttentionFn] = {
  "xla": xla_attention,
  "cudnn": functools.partial(_library_attention, implementation="cudnn"),
}
