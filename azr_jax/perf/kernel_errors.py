"""The attention kernels of this machine beside plain XLA: errors and seconds.

Both get the same random inputs. The reference is plain XLA on the same numbers
in float32, with products in full precision.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import DTypeLike

from azr_jax.models import attention, cached_attention, pages
from azr_jax.models.config import ModelConfig
from azr_jax.models.operations import cache_entry_bytes
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.perf import device
from azr_jax.rollout.settings import SamplerSettings

# Layers of the cache, which one call reads one after another: the time of a
# call's start is divided among them.
LAYERS = 8
# Tokens of a call that are not in pages yet, and the room for them.
_RECENT, _RECENT_ROOM = 16, 32
# A kernel is wrong if its error is so many times that of plain XLA in the same
# type, and above what another order of sums makes in float32.
_FACTOR, _LEAST = 3.0, 1e-5


def training(
  mesh: Mesh,
  config: ModelConfig,
  dtype: DTypeLike,
  segments: np.ndarray,
  name: str = "auto",
  repeats: int = 5,
) -> dict[str, Any]:
  """Compares the attention of training, forward and backward.

  Args:
    mesh: of one device.
    config: whose heads attend.
    dtype: of queries, keys and values.
    segments: int32 [B, S], the sequences of packed rows.
    name: one of `attention.NAMES`.
    repeats: timed calls of each, of which the fastest counts.

  Returns:
    What `_compare` returns, of outputs, gradients and seconds.
  """
  platform = mesh_lib.platform(mesh)
  kernel = attention.make(name, mesh, dtype, max(1, int(segments.max())))
  by_query = (*segments.shape, config.num_heads, config.head_size)
  by_key = (*segments.shape, config.num_kv_heads, config.head_size)
  q, weights, k, v = _normal(by_query, by_query, by_key, by_key, dtype=dtype)
  live = jnp.asarray(segments > 0)[..., None, None]

  def program(attend: attention.AttentionFn) -> Callable[..., Any]:
    @jax.jit
    def run(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
      def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        out = jnp.where(live, attend(q, k, v, jnp.asarray(segments)), 0)
        return jnp.sum((out * weights).astype(jnp.float32)), out

      grads, out = jax.grad(loss, (0, 1, 2), has_aux=True)(q, k, v)
      return out, *grads

    return run

  return {
    "kernel": attention.backend_for(platform, dtype) if name == "auto" else name
  } | _compare(
    program(kernel),
    program(attention.xla_attention),
    (q, k, v),
    ("outputs", "query_gradients", "key_gradients", "value_gradients"),
    repeats,
  )


def decoding(
  mesh: Mesh,
  config: ModelConfig,
  dtype: DTypeLike,
  lengths: list[int],
  page_size: int,
  tokens: int = 1,
  repeats: int = 5,
  interpret: bool = False,
) -> dict[str, Any]:
  """Compares the attention of decoding to cached tokens, by layer.

  Args:
    mesh: of one device.
    config: whose heads attend.
    dtype: of queries, keys and values.
    lengths: cached tokens of each row.
    page_size: C, tokens of a page.
    tokens: S, above 1 with drafts.
    repeats: timed calls of each, of which the fastest counts.
    interpret: run the kernel step by step on any device, for tests.

  Returns:
    What `_compare` returns, of outputs and seconds, and the fraction of the
    memory's rate at which the kernel reads the cached tokens.
  """
  H, K, E = config.num_heads, config.num_kv_heads, config.head_size
  cache = _cache(lengths, page_size, K, E, dtype)
  rows = len(lengths)
  q, *entries = _normal(
    (rows, tokens, H, E),
    *[(rows, K, tokens, E)] * 2,
    *[(LAYERS, rows, K, _RECENT_ROOM, E)] * 2,
    dtype=dtype,
  )
  new, recent = pages.Entries(*entries[:2]), pages.Entries(*entries[2:])
  platform = mesh_lib.platform(mesh)
  settings = SamplerSettings(page_size=page_size)
  live = None
  if interpret or settings.lists_pages(platform, E, dtype):
    live = cached_attention.list_pages(
      cache.pool, cache.table, cache.length, platform
    )
  # Each row has gone on by its own number of tokens where there are drafts.
  count = jnp.int32(_RECENT)
  if tokens > 1:
    count = jnp.arange(rows, dtype=jnp.int32) % _RECENT
  attend = cached_attention.make(mesh, K, interpret)

  def program(live: Any) -> Callable[..., Any]:
    @jax.jit
    def run(
      q: jax.Array,
      new: pages.Entries,
      pool: pages.Pool,
      recent: pages.Entries,
    ) -> Any:
      of_pool = cache.replace(pool=pool, live=live)
      newer = pages.RecentKV(recent, count)
      return (
        jax.lax.map(
          lambda layer: attend(q, new, of_pool, newer, layer),
          jnp.arange(LAYERS, dtype=jnp.int32),
        ),
      )

    return run

  found = _compare(
    program(live),
    program(None),
    (q, new, cache.pool, recent),
    ("outputs",),
    repeats,
    LAYERS,
  )
  layer_bytes = (
    sum(lengths) * cache_entry_bytes(config, dtype) / config.num_layers
  )
  bandwidth = device.peak_rates()["bandwidth"]
  return {
    "kernel": "loop" if live is None else "live pages",
    **found,
    "bandwidth_fraction": layer_bytes / bandwidth / found["seconds"],
  }


def _compare(
  kernel: Callable[..., Any],
  plain: Callable[..., Any],
  inputs: tuple[Any, ...],
  names: tuple[str, ...],
  repeats: int,
  calls: int = 1,
) -> dict[str, Any]:
  """Runs both, and plain XLA in float32.

  Args:
    kernel: (*inputs) to arrays.
    plain: the same by plain XLA.
    inputs: in the type that is compared.
    names: of the arrays.
    repeats: timed calls.
    calls: among which the seconds are divided.

  Returns:
    For each array the kernel's relative error and the plain one's; `wrong`,
    the names whose errors are too large; seconds of both, and their ratio.
  """
  with jax.default_matmul_precision("highest"):
    exact = plain(*jax.tree.map(lambda x: x.astype(jnp.float32), inputs))
  found, by_plain = kernel(*inputs), plain(*inputs)
  errors: dict[str, Any] = {}
  wrong = []
  for name, *arrays in zip(names, exact, found, by_plain, strict=True):
    of_kernel, of_plain = (float(_error(x, arrays[0])) for x in arrays[1:])
    errors |= {f"{name}_error": of_kernel, f"{name}_error_plain": of_plain}
    # This way around NaN is wrong.
    if not of_kernel <= _FACTOR * of_plain + _LEAST:
      wrong.append(name)
  seconds = device.fastest(lambda: kernel(*inputs), repeats) / calls
  plain_seconds = device.fastest(lambda: plain(*inputs), repeats) / calls
  return errors | {
    "wrong": wrong,
    "seconds": seconds,
    "plain_seconds": plain_seconds,
    "speedup": plain_seconds / seconds,
  }


@jax.jit
def _error(found: jax.Array, exact: jax.Array) -> jax.Array:
  """Returns the norm of the difference over that of the exact array."""
  difference = found.astype(jnp.float32) - exact
  return jnp.linalg.norm(difference.ravel()) / jnp.linalg.norm(exact.ravel())


def _normal(*shapes: tuple[int, ...], dtype: DTypeLike) -> list[jax.Array]:
  """Returns random numbers of these shapes."""
  keys = jax.random.split(jax.random.key(0), len(shapes))
  return [
    jax.random.normal(key, shape, jnp.dtype(dtype))
    for key, shape in zip(keys, shapes, strict=True)
  ]


def _cache(
  lengths: list[int], page_size: int, K: int, E: int, dtype: DTypeLike
) -> pages.PagedCache:
  """Returns rows whose pages lie in the pool in a random order."""
  counts = [-(-length // page_size) for length in lengths]
  free = np.random.default_rng(0).permutation(max(1, sum(counts)))
  table = np.zeros((len(lengths), max(1, *counts)), np.int32)
  starts = np.cumsum([0, *counts])
  for row, count in enumerate(counts):
    table[row, :count] = free[starts[row] : starts[row] + count]
  shape = LAYERS, len(free), K
  k, v = _normal((*shape, E, page_size), (*shape, page_size, E), dtype=dtype)
  length = jnp.asarray(lengths, jnp.int32)
  return pages.PagedCache(
    pages.Pool(k, v), jnp.asarray(table), length, pages.by_length(length)
  )
