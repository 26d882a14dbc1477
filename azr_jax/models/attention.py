"""Attention over whole sequences, as in training, by backend name.

Sampling's, over a cache, is in `cache.py`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from azr_jax.models import splash

_HIDDEN = -1e30
AttentionFn = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def causal_mask(segment_ids: Int[Array, "B S"]) -> Bool[Array, "B S S"]:
  """Lets a token see itself and earlier tokens of its own sequence."""
  same = segment_ids[:, :, None] == segment_ids[:, None, :]
  return jnp.tril(same)


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


# Name -> function of the mesh that gives the attention of training.
BACKENDS: dict[str, Callable[[Mesh], AttentionFn]] = {
  "xla": lambda mesh: xla_attention,
  "cudnn": lambda mesh: cudnn_attention,
  "splash": splash.make_attention,
}


NAMES = ("auto", *BACKENDS)


def backend_for(platform: str, dtype: Any) -> str:
  """What `auto` stands for: the fastest backend of a platform.

  Args:
    platform: cpu, gpu or tpu.
    dtype: that of the computation; cuDNN has no float32.
  """
  if platform == "tpu":
    return "splash"
  half = jnp.dtype(dtype) in (jnp.bfloat16, jnp.float16)
  return "cudnn" if platform == "gpu" and half else "xla"


def make(name: str, mesh: Mesh, dtype: Any) -> AttentionFn:
  """The attention of training; `auto` goes by the mesh's platform."""
  if name == "auto":
    name = backend_for(mesh.devices.flat[0].platform, dtype)
  return BACKENDS[name](mesh)
