"""A cache whose rows have their pages in a random order, on one device."""

import jax
import jax.numpy as jnp
import numpy as np

from azr_jax.models import pages


def empty_cache(shape, page_tokens, seed=0):
  """Returns an empty cache of float32.

  Args:
    shape: L, R, K, T and E; rows have room for T tokens.
    page_tokens: C.
    seed: of the order of the pages, some of which no row has.
  """
  L, R, K, T, E = shape
  of_row = -(-T // page_tokens)
  num_pages = R * of_row + 3
  pool = pages.init_pool((L, num_pages, K, page_tokens, E), jnp.float32)
  order = np.random.default_rng(seed).permutation(num_pages)[: R * of_row]
  table = jnp.asarray(order.reshape(R, of_row), jnp.int32)
  # Entries that no row has must not be seen.
  pool = jax.tree.map(lambda x: x + 1e6, pool)
  return with_length(pages.PagedCache(pool, table, None, None), np.zeros(R))


def with_length(cache, length):
  """Returns the cache with other lengths of its rows."""
  length = jnp.asarray(length, jnp.int32)
  return cache.replace(length=length, order=pages.by_length(length))


def write_rows(cache, k, v, start):
  """Returns the cache with these entries of each row, from `start` on."""
  counts = jnp.full(len(start), k.shape[3], jnp.int32)
  new = pages.Entries(k, v)
  starts = jnp.asarray(start, jnp.int32)
  pool = pages.write_entries(cache.pool, new, cache.table, starts, counts)
  return cache.replace(pool=pool)
