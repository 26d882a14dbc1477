"""Compares this machine's attention kernels with plain XLA: errors and seconds.

Both get the same random inputs. The reference is plain XLA on the same inputs
in float32, with full-precision matrix products.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int32

from azr_jax.lab.bench import array_errors
from azr_jax.learner.settings import LearnerSettings
from azr_jax.models import attention, cached_attention, pages
from azr_jax.models.cached_attention import CachedAttentionFn
from azr_jax.models.config import ModelConfig
from azr_jax.models.operations import cache_entry_bytes
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.settings import SamplerSettings

# Layers of the cache that one call reads in sequence, so that its launch time
# is divided among them.
LAYERS = 4

# Tokens of a call that are not in pages yet, and the capacity for them.
_RECENT, _RECENT_ROOM = 16, 32

# The name of plain XLA among `attention.BACKENDS`.
_PLAIN = "xla"


def training(
  mesh: Mesh,
  config: ModelConfig,
  dtype: DTypeLike,
  segments: Int32[np.ndarray, "B S"],
  name: str = "auto",
  repeats: int = 5,
) -> dict[str, Any]:
  """Compares training attention, forward and backward.

  Plain XLA materializes the scores [B, H, S, S], in float32 too.

  Args:
    mesh: a mesh of one device.
    config: the model whose heads attend.
    dtype: dtype of queries, keys and values.
    segments: sequence numbers in packed rows.
    name: one of `attention.NAMES`.
    repeats: timed calls of each; the fastest counts.

  Returns:
    The kernel's name as `kernel`, and the result of `array_errors.compare`.
  """
  if name == "auto":
    name = attention.backend_for(mesh_lib.platform(mesh), dtype)
  # Packed rows respect this limit, and a kernel built for it rejects rows with
  # more sequences.
  room = max(LearnerSettings().max_sequences_per_row, int(segments.max()))
  by_query = (*segments.shape, config.num_heads, config.head_size)
  by_key = (*segments.shape, config.num_kv_heads, config.head_size)
  q, weights, k, v = _normal(0, by_query, by_query, by_key, by_key, dtype=dtype)

  def program(attend: attention.AttentionFn) -> Callable[..., Any]:
    @jax.jit
    def run(*inputs: jax.Array) -> tuple[jax.Array, ...]:
      q, k, v, weights, segments = inputs
      live = (segments > 0)[..., None, None]

      def loss(
        q: jax.Array, k: jax.Array, v: jax.Array
      ) -> tuple[jax.Array, jax.Array]:
        out = jnp.where(live, attend(q, k, v, segments), 0)
        return jnp.sum((out * weights).astype(jnp.float32)), out

      grads, out = jax.grad(loss, (0, 1, 2), has_aux=True)(q, k, v)
      return out, *grads

    return run

  plain = program(attention.xla_attention)
  return {"kernel": name} | array_errors.compare(
    array_errors.Programs(
      (q, k, v, weights, jnp.asarray(segments)),
      ("outputs", "query_gradients", "key_gradients", "value_gradients"),
      lambda *inputs: plain(*array_errors.floats(inputs)),
      plain,
      None
      if name == _PLAIN
      else program(attention.make(name, mesh, dtype, room)),
    ),
    repeats,
  )


def decoding(
  mesh: Mesh,
  config: ModelConfig,
  dtype: DTypeLike,
  lengths: list[int],
  page_size: int,
  tokens: int = 1,
  bandwidth: float = 1.0,
  repeats: int = 5,
  interpret: bool = False,
) -> dict[str, Any]:
  """Compares decode attention to cached tokens, per layer.

  Args:
    mesh: a mesh of one device.
    config: the model whose heads attend.
    dtype: dtype of queries, keys and values.
    lengths: cached tokens of each row.
    page_size: C, tokens of a page.
    tokens: S, new tokens per row; above 1 with drafts.
    bandwidth: bandwidth of the device's memory in bytes per second.
    repeats: timed calls of each; the fastest counts.
    interpret: whether to interpret the kernel on any device, for tests.

  Returns:
    The kernel's name as `kernel`, `rows`, `cached_tokens` over all rows, the
    result of `array_errors.compare`, and the fraction of the memory bandwidth
    at which cached tokens are read.
  """
  platform, K = mesh_lib.platform(mesh), config.num_kv_heads
  q, new, cache, recent = _decoding_inputs(
    config, dtype, lengths, page_size, tokens
  )
  live = None
  settings = SamplerSettings(page_size=page_size)
  if interpret or settings.lists_pages(platform, config.head_size, dtype):
    live = cached_attention.list_pages(
      cache.pool, cache.table, cache.length, platform
    )
  attend = cached_attention.make(mesh, K, interpret)
  found = array_errors.compare(
    array_errors.Programs(
      (q, new, cache.replace(live=live), recent),
      ("outputs",),
      _exact_by_layer(attend),
      _by_layer(attend, reads_live_pages=False),
      None if live is None else _by_layer(attend, reads_live_pages=True),
      LAYERS,
    ),
    repeats,
  )
  layer_bytes = cache_entry_bytes(config, dtype) / config.num_layers
  total = sum(lengths)
  return {
    "kernel": "loop" if live is None else "live pages",
    "rows": len(lengths),
    "cached_tokens": total,
    **found,
    "bandwidth_fraction": total * layer_bytes / bandwidth / found["seconds"],
  }


def _decoding_inputs(
  config: ModelConfig,
  dtype: DTypeLike,
  lengths: list[int],
  page_size: int,
  tokens: int,
) -> tuple[
  Float[Array, "B S H E"], pages.Entries, pages.PagedCache, pages.RecentKV
]:
  """Returns queries, their own entries, the cache, and recent tokens."""
  rows, K, E = len(lengths), config.num_kv_heads, config.head_size
  q, *entries = _normal(
    1,
    (rows, tokens, config.num_heads, E),
    *[(rows, K, tokens, E)] * 2,
    *[(LAYERS, rows, K, _RECENT_ROOM, E)] * 2,
    dtype=dtype,
  )
  # With drafts, each row has advanced by a different number of tokens.
  count = jnp.int32(_RECENT)
  if tokens > 1:
    count = jnp.arange(rows, dtype=jnp.int32) % _RECENT
  cache = _cache(lengths, page_size, K, E, dtype)
  recent = pages.RecentKV(pages.Entries(*entries[2:]), count)
  return q, pages.Entries(*entries[:2]), cache, recent


def _by_layer(
  attend: CachedAttentionFn, reads_live_pages: bool
) -> Callable[..., Any]:
  """Returns attention over all layers, by the kernel or by the loop."""

  @jax.jit
  def run(*inputs: Any) -> tuple[jax.Array]:
    q, new, cache, recent = inputs
    if not reads_live_pages:
      cache = cache.replace(live=None)
    layers = jnp.arange(LAYERS, dtype=jnp.int32)
    return (
      jax.lax.map(lambda layer: attend(q, new, cache, recent, layer), layers),
    )

  return run


def _exact_by_layer(attend: CachedAttentionFn) -> Callable[..., Any]:
  """Returns a function that runs the loop in all layers, in float32."""

  @jax.jit
  def run(*inputs: Any) -> tuple[jax.Array]:
    q, new, cache, recent = inputs
    q, new = array_errors.floats((q, new))

    def one_layer(layer: jax.Array) -> jax.Array:
      # One layer at a time: a float32 copy of the whole pool may not fit.
      pool, entries = jax.tree.map(
        lambda x: x[layer][None].astype(jnp.float32),
        (cache.pool, recent.entries),
      )
      of_layer = cache.replace(pool=pool, live=None)
      newer = recent.replace(entries=entries)
      return attend(q, new, of_layer, newer, jnp.int32(0))

    return (jax.lax.map(one_layer, jnp.arange(LAYERS, dtype=jnp.int32)),)

  return run


def _normal(
  seed: int, *shapes: tuple[int, ...], dtype: DTypeLike
) -> list[Float[Array, "..."]]:
  """Returns normally distributed arrays of these shapes."""
  keys = jax.random.split(jax.random.key(seed), len(shapes))
  return [
    jax.random.normal(key, shape, jnp.dtype(dtype))
    for key, shape in zip(keys, shapes, strict=True)
  ]


def _cache(
  lengths: list[int], page_size: int, K: int, E: int, dtype: DTypeLike
) -> pages.PagedCache:
  """Returns a cache whose rows have pages in random places of the pool."""
  counts = [-(-length // page_size) for length in lengths]
  free = np.random.default_rng(0).permutation(max(1, sum(counts)))
  table = np.zeros((len(lengths), max(1, *counts)), np.int32)
  starts = np.cumsum([0, *counts])
  for row, count in enumerate(counts):
    table[row, :count] = free[starts[row] : starts[row] + count]
  shape = LAYERS, len(free), K
  k, v = _normal(2, (*shape, E, page_size), (*shape, page_size, E), dtype=dtype)
  length = jnp.asarray(lengths, jnp.int32)
  return pages.PagedCache(
    pages.Pool(k, v), jnp.asarray(table), length, pages.by_length(length)
  )
