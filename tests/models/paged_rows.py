"""A single-device cache whose rows have their pages in random order."""

import jax
import jax.numpy as jnp
import numpy as np

from azr_jax.models import pages

_write_entries = jax.jit(pages.write_entries)


def empty_cache(shape, page_tokens, seed=0):
  """Returns an empty float32 cache.

  Args:
    shape: L, R, K, T and E; rows have space for T tokens.
    page_tokens: C.
    seed: seed of the page order. Some pages belong to no row.
  """
  L, R, K, T, E = shape
  of_row = -(-T // page_tokens)
  num_pages = R * of_row + 3
  pool = pages.init_pool((L, num_pages, K, page_tokens, E), jnp.float32)
  order = np.random.default_rng(seed).permutation(num_pages)[: R * of_row]
  table = jnp.asarray(order.reshape(R, of_row), jnp.int32)
  # Large values, to detect reads of entries that no row has.
  pool = jax.tree.map(lambda x: x + 1e6, pool)
  length = jnp.zeros(R, jnp.int32)
  return pages.PagedCache(pool, table, length, pages.by_length(length))


def with_length(cache, length):
  """Returns the cache with other row lengths."""
  length = jnp.asarray(length, jnp.int32)
  return cache.replace(length=length, order=pages.by_length(length))


def write_rows(cache, k, v, start):
  """Returns the cache with these entries written to each row from `start`."""
  counts = jnp.full(len(start), k.shape[3], jnp.int32)
  new = pages.Entries(k, v)
  starts = jnp.asarray(start, jnp.int32)
  pool = _write_entries(cache.pool, new, cache.table, starts, counts)
  return cache.replace(pool=pool)
