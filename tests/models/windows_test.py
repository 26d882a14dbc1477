"""Sliding windows: no backend reads, or needs, what lies before them.

Some cases have attention sinks besides.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typed import instance_of

from azr_jax.models import (
  attention,
  cached_attention,
  cudnn,
  operations,
  pages,
  presets,
  splash,
)
from azr_jax.parallel import mesh as mesh_lib

PAGE, HEAD_SIZE, KV_HEADS, GROUP = 32, 16, 2, 3
LENGTHS = (0, 1, 31, 32, 33, 90)


def normal(rng, *shape):
  return jnp.asarray(rng.normal(size=shape), jnp.float32)


def sinks_of(count):
  """Returns sinks from one that counts little to one that hides the rest."""
  return jnp.linspace(-2, 6, count)


def attended(q, k, v, first, sink=None):
  """Returns the attention of q [E] to the keys and values from `first` on."""
  scores = k[first:] @ q / np.sqrt(len(q))
  weights = np.exp(scores)
  total = weights.sum() + (0 if sink is None else np.exp(sink))
  return weights @ v[first:] / total


@pytest.mark.parametrize(
  "window, has_sinks", [(1, True), (4, False), (4, True), (13, False)]
)
def test_a_token_sees_the_last_tokens_of_its_sequence(window, has_sinks):
  rng = np.random.default_rng(0)
  segments = np.array([[1] * 5 + [2] * 8])
  q = normal(rng, 1, 13, 4, 8)
  k, v = normal(rng, 1, 13, 2, 8), normal(rng, 1, 13, 2, 8)
  sinks = sinks_of(4) if has_sinks else None
  got = attention.xla_attention(q, k, v, jnp.asarray(segments), window, sinks)
  got, q, k, v = jax.device_get((got, q, k, v))
  for s, h in np.ndindex(13, 4):
    start = 0 if s < 5 else 5
    keys, values = k[0, : s + 1, h // 2], v[0, : s + 1, h // 2]
    sink = None if sinks is None else sinks[h]
    want = attended(q[0, s, h], keys, values, max(start, s + 1 - window), sink)
    np.testing.assert_allclose(got[0, s, h], want, atol=1e-5)


@pytest.mark.parametrize(
  "context, window, has_sinks",
  [
    (2, 150, True),
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in ((1, 1, False), (1, 513, False), (1, 0, True))
    ),
  ],
)
def test_splash_equals_xla(context, window, has_sinks):
  """Packed rows of two blocks; gradients too."""
  mesh = mesh_lib.make_mesh(
    {"data": 1, "fsdp": 1, "tensor": 1, "context": context},
    jax.devices()[:context],
  )
  rng = np.random.default_rng(0)
  q, k, v = (normal(rng, 1, 600, heads, 64) for heads in (2, 1, 1))
  segments = jnp.asarray(np.repeat([[1, 1, 2]], 200, axis=1))
  kernel = splash.make_attention(mesh, interpret=True)

  @functools.partial(jax.jit, static_argnames="attend")
  def run(q, k, v, attend):
    def loss(q, k, v, sinks):
      out = attend(q, k, v, segments, window, sinks)
      return jnp.sum(jnp.sin(out)), out

    sinks = sinks_of(2) if has_sinks else None
    return jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True)(q, k, v, sinks)

  got, want = (run(q, k, v, f) for f in (kernel, attention.xla_attention))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), got, want
  )


@pytest.mark.parametrize("block", [1, 2, 5])
def test_splash_runs_the_blocks_that_a_window_reaches(block):
  row, index = jnp.ones(40, jnp.int32), np.arange(40)
  for window in (1, 4, 9):
    sees = np.tril(index[:, None] - index[None] < window)
    by_block = sees.reshape(40 // block, block, 40 // block, block).any((1, 3))
    found = splash.live_blocks(row, row, 0, block, window)
    np.testing.assert_array_equal(found, by_block)


@pytest.mark.parametrize("window, has_sinks", [(4, False), (0, True)])
def test_cudnn_gets_a_mask(window, has_sinks, monkeypatch, one_device_mesh):
  """cuDNN's packed form has neither, so these layers have the masked one."""

  def without_cudnn(q, k, v, mask, scale, implementation):
    assert implementation == "cudnn" and not q.shape[3] % 8
    return plain(q, k, v, mask=mask, scale=scale)

  plain = jax.nn.dot_product_attention
  monkeypatch.setattr(jax.nn, "dot_product_attention", without_cudnn)
  rng = np.random.default_rng(0)
  q, k, v = (normal(rng, 2, 13, heads, 16) for heads in (4, 2, 2))
  segments = jnp.asarray([[1] * 5 + [2] * 8, [1] * 13])
  masked = cudnn.make_attention(one_device_mesh, 2, cudnn.Kernels())

  @functools.partial(jax.jit, static_argnames="attend")
  def run(attend):
    def loss(q, k, v, sinks):
      out = attend(q, k, v, segments, window, sinks)
      return jnp.sum(jnp.sin(out)), out

    sinks = sinks_of(4) if has_sinks else None
    return jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True)(q, k, v, sinks)

  got, want = (run(f) for f in (masked, attention.xla_attention))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, want
  )


def cache_of(rng, window):
  """Returns a cache whose pages before the windows hold NaN."""
  rows, most = len(LENGTHS), -(-max(LENGTHS) // PAGE) + 1
  table = rng.permutation(rows * most).reshape(rows, most).astype(np.int32)
  k = rng.normal(size=(2, table.size, KV_HEADS, HEAD_SIZE, PAGE))
  v = rng.normal(size=(2, table.size, KV_HEADS, PAGE, HEAD_SIZE))
  for row, length in enumerate(LENGTHS):
    hidden = table[row, : max(0, length - window + 1) // PAGE]
    k[:, hidden], v[:, hidden] = np.nan, np.nan
  length = jnp.asarray(LENGTHS, jnp.int32)
  return pages.PagedCache(
    pages.Pool(jnp.asarray(k, jnp.float32), jnp.asarray(v, jnp.float32)),
    *(jnp.asarray(table), length, pages.by_length(length)),
  )


def entries_of(cache, row, count):
  """Returns the first cached keys and values of a row in layer 1, [K, T, E]."""
  of_row = cache.table[row]
  k = np.concatenate(np.swapaxes(cache.pool.k[1, of_row], -1, -2), axis=1)
  v = np.concatenate(cache.pool.v[1, of_row], axis=1)
  return k[:, :count], v[:, :count]


@pytest.mark.parametrize(
  "window, tokens, has_sinks",
  [
    (5, 1, True),
    (2, 3, False),
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in ((40, 1, False), (40, 3, True))
    ),
  ],
)
@pytest.mark.parametrize("platform", ["loop", "tpu", "gpu"])
def test_cached_attention_starts_at_the_window(
  platform, window, tokens, has_sinks
):
  """With the other layers' window beside it, as in models with two."""
  rng = np.random.default_rng(window)
  rows, windows = len(LENGTHS), (0, window)
  cache = cache_of(rng, window)
  q = normal(rng, rows, tokens, KV_HEADS * GROUP, HEAD_SIZE)
  new = pages.Entries(
    *(normal(rng, rows, KV_HEADS, tokens, HEAD_SIZE) for _ in range(2))
  )
  room = pages.Entries(
    *(normal(rng, 2, rows, KV_HEADS, 16, HEAD_SIZE) for _ in range(2))
  )
  counts = np.full(rows, 9) if tokens == 1 else 2 * np.arange(rows)[::-1]
  count = jnp.asarray(counts[0] if tokens == 1 else counts, jnp.int32)
  if platform != "loop":
    live = cached_attention.list_pages(
      *(cache.pool, cache.table, cache.length, platform, windows)
    )
    cache = cache.replace(live=live)
  sinks = sinks_of(KV_HEADS * GROUP) if has_sinks else None
  out = cached_attention.cached_attention(
    *(q, new, pages.of_window(cache, windows, jnp.int32(1))),
    *(pages.RecentKV(room, count), jnp.int32(1), sinks),
    interpret=True,
  )
  out, q, cache, room, new = jax.device_get((out, q, cache, room, new))
  for row, s, h in np.ndindex(rows, tokens, KV_HEADS * GROUP):
    head, recent = h // GROUP, counts[row]
    k, v = (
      np.concatenate([of_cache[head], of_room[1, row, head, :recent], own])
      for of_cache, of_room, own in zip(
        entries_of(cache, row, LENGTHS[row]),
        (room.k, room.v),
        (new.k[row, head, : s + 1], new.v[row, head, : s + 1]),
        strict=True,
      )
    )
    sink = None if sinks is None else sinks[h]
    want = attended(q[row, s, h], k, v, max(0, len(k) - window), sink)
    np.testing.assert_allclose(out[row, s, h], want, atol=1e-5)


@pytest.mark.parametrize("window", [1, 40, 64])
def test_work_lists_hold_what_the_window_reaches(window):
  """No page or block before the window of the next token is listed."""
  table = jnp.arange(len(LENGTHS) * 4).reshape(-1, 4)
  pool = pages.init_pool((1, table.size, 1, PAGE, HEAD_SIZE), jnp.float32)
  length = jnp.asarray(LENGTHS, jnp.int32)
  lists = functools.partial(cached_attention.list_pages, pool, table, length)
  live = instance_of(pages.LivePages, lists("tpu", (window,)))
  shares = instance_of(pages.RowShares, lists("gpu", (window,)))
  for row, size in enumerate(LENGTHS):
    first = max(0, size - window + 1) // PAGE
    is_own = np.asarray(live.row) == row
    want = np.asarray(table)[row, first : -(-size // PAGE)]
    np.testing.assert_array_equal(np.asarray(live.page)[is_own], want)
    of_row = slice(shares.first[row], shares.first[row + 1])
    start, end = shares.start[of_row], shares.end[of_row]
    assert np.sum(end - start) == (size - first * PAGE if len(want) else 0)


@pytest.mark.parametrize("length", [1, 8, 9, 30])
def test_the_mean_context_counts_visible_tokens(length):
  config = dataclasses.replace(
    presets.PRESETS["azr-tiny"], windows=(8, 0, 1, 64)
  )
  seen = [
    min(token, window or token)
    for window in config.windows
    for token in range(1, length + 1)
  ]
  assert operations.mean_context(config, length) == np.mean(seen)
