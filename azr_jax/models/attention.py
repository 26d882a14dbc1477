"""Attention over whole sequences, as in training, by backend name.

Attention over a cache, as in sampling, is in `cached_attention.py`.
"""

from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from azr_jax.models import cudnn, splash
from azr_jax.parallel import mesh as mesh_lib

# Score of keys that a query must not see.
MASK_VALUE = -1e30


class AttentionFn(Protocol):
  """Causal attention within the sequences of rows."""

  def __call__(
    self,
    q: Float[Array, "B S H E"],
    k: Float[Array, "B S K E"],
    v: Float[Array, "B S K E"],
    segment_ids: Int[Array, "B S"],
    window: int = 0,
    sinks: Float[Array, " H"] | None = None,
  ) -> Float[Array, "B S H E"]:
    """Returns the outputs.

    Args:
      q: not scaled yet.
      k: may have fewer heads than `q`.
      v: as many heads as `k`.
      segment_ids: which sequence of its row a token belongs to.
      window: number of tokens that a token attends to, including itself; 0: all
        earlier ones.
      sinks: the score of one more key of each query head, which every token
        sees and which has no value. None: there is none.
    """
    ...


def causal_mask(
  segment_ids: Int[Array, "B S"], window: int = 0
) -> Bool[Array, "B S S"]:
  """Returns whether each query sees each key.

  It sees keys of its sequence that are not later and, with a window, among
  these the last `window`.
  """
  same = segment_ids[:, :, None] == segment_ids[:, None, :]
  seen = jnp.tril(same)
  return jnp.triu(seen, 1 - window) if window else seen


@jax.named_scope("attend")
def xla_attention(
  q: Float[Array, "B S H E"],
  k: Float[Array, "B S K E"],
  v: Float[Array, "B S K E"],
  segment_ids: Int[Array, "B S"],
  window: int = 0,
  sinks: Float[Array, " H"] | None = None,
) -> Float[Array, "B S H E"]:
  """Returns attention in plain XLA; scores and softmax are float32."""
  B, S, H, E = q.shape
  K = k.shape[2]
  q_BSKGE = q.reshape(B, S, K, H // K, E) * E**-0.5
  scores_BKGST = jnp.einsum(
    "BSKGE,BTKE->BKGST", q_BSKGE, k, preferred_element_type=jnp.float32
  )
  mask = causal_mask(segment_ids, window)[:, None, None]
  scores_BKGST = jnp.where(mask, scores_BKGST, MASK_VALUE)
  if sinks is None:
    weights_BKGST = jax.nn.softmax(scores_BKGST, axis=-1)
  else:
    sinks_1KG11 = sinks.reshape(1, K, H // K, 1, 1).astype(jnp.float32)
    weights_BKGST = _softmax_beside(scores_BKGST, sinks_1KG11)
  out_BSKGE = jnp.einsum("BKGST,BTKE->BSKGE", weights_BKGST.astype(v.dtype), v)
  return out_BSKGE.reshape(B, S, H, E)


def _softmax_beside(
  scores: Float[Array, "B K G S T"], sinks: Float[Array, "1 K G 1 1"]
) -> Float[Array, "B K G S T"]:
  """Returns the softmax over scores and one sink, without the sink's weight."""
  maximum = jnp.maximum(jnp.max(scores, axis=-1, keepdims=True), sinks)
  maximum = jax.lax.stop_gradient(maximum)
  weights = jnp.exp(scores - maximum)
  total = jnp.sum(weights, axis=-1, keepdims=True) + jnp.exp(sinks - maximum)
  return weights / total


# Each backend's factory takes the mesh and the maximum number of sequences per
# row, and returns the attention of training.
BACKENDS: dict[str, Callable[[Mesh, int], AttentionFn]] = {
  "xla": lambda mesh, max_sequences_per_row: xla_attention,
  "cudnn": cudnn.make_attention,
  "splash": lambda mesh, max_sequences_per_row: splash.make_attention(mesh),
}
# The names that `make` accepts.
NAMES = ("auto", *BACKENDS)


def backend_for(platform: str, dtype: DTypeLike) -> str:
  """Returns the backend that `auto` chooses: the fastest of a platform.

  Args:
    platform: cpu, gpu or tpu.
    dtype: the type of the computation; cuDNN has no float32.
  """
  if platform == "tpu":
    return "splash"
  return "cudnn" if platform == "gpu" and _is_half(dtype) else "xla"


def resolve(name: str, mesh: Mesh, dtype: DTypeLike) -> str:
  """Returns the backend that a name of `NAMES` means on a mesh."""
  return backend_for(mesh_lib.platform(mesh), dtype) if name == "auto" else name


def _is_half(dtype: DTypeLike) -> bool:
  return jnp.dtype(dtype) in (jnp.bfloat16, jnp.float16)


def make(
  name: str, mesh: Mesh, dtype: DTypeLike, max_sequences_per_row: int
) -> AttentionFn:
  """Returns the attention of training.

  Args:
    name: one of `NAMES`; `auto` takes the fastest on the mesh's platform.
    mesh: the devices over which rows and heads are sharded.
    dtype: the type of the computation.
    max_sequences_per_row: maximum sequences per packed row.

  Raises:
    ValueError: the backend does not support rows split over devices, or this
      type.
  """
  name = resolve(name, mesh, dtype)
  if name == "cudnn" and mesh.shape["context"] > 1:
    raise ValueError(
      f"mesh.context={mesh.shape['context']}: expected 1, because cuDNN's "
      "attention needs whole rows"
    )
  if name == "cudnn" and not _is_half(dtype):
    raise ValueError(
      f"model.dtype={jnp.dtype(dtype).name!r}: expected 'bfloat16' with "
      "model.attention='cudnn'"
    )
  return BACKENDS[name](mesh, max_sequences_per_row)
