"""Attention over whole sequences, as in training, by backend name.

Attention over a cache, as in sampling, is in `cache.py`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from azr_jax.models import splash

# The score of a key that a query must not see.
HIDDEN_SCORE = -1e30
# (q [B, S, H, E], k [B, S, K, E], v [B, S, K, E], segment_ids [B, S]) to
# outputs [B, S, H, E].
AttentionFn = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def causal_mask(segment_ids: Int[Array, "B S"]) -> Bool[Array, "B S S"]:
  """Returns true where a query may see a key: its own sequence up to itself."""
  same = segment_ids[:, :, None] == segment_ids[:, None, :]
  return jnp.tril(same)


@jax.named_scope("attend")
def xla_attention(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  segment_ids: Int[Array, "B S"],
) -> Float[Array, "B S H E"]:
  """Returns attention in plain XLA; scores and softmax are float32."""
  B, S, H, E = q.shape
  K = k.shape[2]
  q_BSKGE = q.reshape(B, S, K, H // K, E) * E**-0.5
  scores_BKGST = jnp.einsum(
    "BSKGE,BTKE->BKGST", q_BSKGE, k, preferred_element_type=jnp.float32
  )
  mask = causal_mask(segment_ids)[:, None, None]
  scores_BKGST = jnp.where(mask, scores_BKGST, HIDDEN_SCORE)
  weights_BKGST = jax.nn.softmax(scores_BKGST, axis=-1).astype(v.dtype)
  out_BSKGE = jnp.einsum("BKGST,BTKE->BSKGE", weights_BKGST, v)
  return out_BSKGE.reshape(B, S, H, E)


@jax.named_scope("attend")
def cudnn_attention(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  segment_ids: Int[Array, "B S"],
) -> Float[Array, "B S H E"]:
  """Returns cuDNN's flash attention, for NVIDIA GPUs and half precision."""
  mask = causal_mask(segment_ids)[:, None]
  return jax.nn.dot_product_attention(
    q, k, v, mask=mask, implementation="cudnn"
  )


# Name -> function from the mesh to the attention of training.
BACKENDS: dict[str, Callable[[Mesh], AttentionFn]] = {
  "xla": lambda mesh: xla_attention,
  "cudnn": lambda mesh: cudnn_attention,
  "splash": splash.make_attention,
}
# The names that `make` accepts.
NAMES = ("auto", *BACKENDS)


def backend_for(platform: str, dtype: DTypeLike) -> str:
  """Returns the fastest backend of a platform, which `auto` stands for.

  Args:
    platform: cpu, gpu or tpu.
    dtype: the type of the computation; cuDNN has no float32.
  """
  if platform == "tpu":
    return "splash"
  is_half = jnp.dtype(dtype) in (jnp.bfloat16, jnp.float16)
  return "cudnn" if platform == "gpu" and is_half else "xla"


def make(name: str, mesh: Mesh, dtype: DTypeLike) -> AttentionFn:
  """Returns the attention of training.

  Args:
    name: one of `NAMES`; `auto` takes the fastest on the mesh's platform.
    mesh: where rows and heads lie.
    dtype: the type of the computation.

  Raises:
    ValueError: rows lie on several devices, which the backend cannot have.
  """
  if name == "auto":
    name = backend_for(mesh.devices.flat[0].platform, dtype)
  if name == "cudnn" and mesh.shape["context"] > 1:
    raise ValueError(
      f"mesh.context={mesh.shape['context']}: expected 1, because cuDNN's "
      "attention needs whole rows"
    )
  return BACKENDS[name](mesh)
