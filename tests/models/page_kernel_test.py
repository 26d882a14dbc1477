"""The kernels that read live pages agree with the loop over pages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.models import cached_attention, page_kernel, pages, quantization

PAGE = 128
# Empty, one entry, just below and above one page, and several pages.
SHORT = (0, 1, 127, 128, 129, 300)
LENGTHS = (*SHORT, 1000, 0, 10_000, 513)


def cache_of(lengths, kv_heads, head_size, dtype, seed=0):
  """Returns two layers of rows whose pages are in random order."""
  rng = np.random.default_rng(seed)
  longest = -(-max(lengths) // PAGE) + 1
  free = rng.permutation(len(lengths) * longest)
  table = free.reshape(len(lengths), longest).astype(np.int32)
  shape = 2, free.size, kv_heads
  k = rng.normal(size=(*shape, head_size, PAGE))
  v = rng.normal(size=(*shape, PAGE, head_size))
  length = jnp.asarray(lengths, jnp.int32)
  return pages.PagedCache(
    pages.Pool(jnp.asarray(k, dtype), jnp.asarray(v, dtype)),
    jnp.asarray(table),
    length,
    pages.by_length(length),
  )


@pytest.mark.parametrize(
  "lengths, kv_heads, group, tokens",
  [
    (SHORT, 1, 7, 1),
    (SHORT, 1, 7, 4),
    ((0, 0), 1, 1, 1),
    *(
      pytest.param(lengths, *heads, tokens, marks=pytest.mark.slow)
      for lengths, *heads in (
        (SHORT, 4, 2),
        (LENGTHS, 1, 7),
        (LENGTHS, 4, 2),
        (LENGTHS, 8, 1),
      )
      for tokens in (1, 4)
    ),
  ],
)
@pytest.mark.parametrize("platform", ["tpu", "gpu"])
def test_the_kernel_equals_the_loop(lengths, kv_heads, group, tokens, platform):
  rows, head_size, layer = len(lengths), 64, jnp.int32(1)
  cache = cache_of(lengths, kv_heads, head_size, jnp.float32)
  rng = np.random.default_rng(1)

  def draw(*shape):
    return jnp.asarray(rng.normal(size=shape), jnp.float32)

  q = draw(rows, tokens, kv_heads * group, head_size)
  new = pages.Entries(
    *(draw(rows, kv_heads, tokens, head_size) for _ in range(2))
  )
  recent = pages.RecentKV(
    pages.Entries(*(draw(2, rows, kv_heads, 16, head_size) for _ in range(2))),
    # With drafts, rows have different numbers of recent tokens.
    jnp.int32(3) if tokens == 1 else jnp.arange(rows) % 13,
  )
  live = cached_attention.list_pages(
    cache.pool, cache.table, cache.length, platform
  )

  @jax.jit
  def attend(cache):
    return cached_attention.cached_attention(
      q, new, cache, recent, layer, interpret=True
    )

  want = attend(cache)
  np.testing.assert_allclose(
    attend(cache.replace(live=live)), want, atol=2e-6, rtol=2e-5
  )


@pytest.mark.parametrize(
  "name, kv_heads, group",
  [
    ("int8", 1, 7),
    pytest.param("fp8", 4, 2, marks=pytest.mark.slow),
    pytest.param("int8", 4, 2, marks=pytest.mark.slow),
    pytest.param("fp8", 1, 7, marks=pytest.mark.slow),
  ],
)
@pytest.mark.slow
def test_pages_of_8_bits_are_read_with_their_scales(name, kv_heads, group):
  """Kernel and loop agree with attention to the dequantized float pages."""
  dtype, rows, head_size = quantization.DTYPES[name], len(SHORT), 32
  layer = jnp.int32(1)
  cache = cache_of(SHORT, kv_heads, head_size, jnp.float32)
  rng = np.random.default_rng(1)

  def draw(*shape):
    return jnp.asarray(rng.normal(size=shape), jnp.float32)

  def quantized(kv, k_axis, v_axis):
    k, k_scale = quantization.quantize(kv.k, dtype, (k_axis,))
    v, v_scale = quantization.quantize(kv.v, dtype, (v_axis,))
    rounded = kv.replace(
      k=quantization.dequantize(k, k_scale, (k_axis,)),
      v=quantization.dequantize(v, v_scale, (v_axis,)),
    )
    return type(kv)(k, v, k_scale, v_scale), rounded

  q = draw(rows, 1, kv_heads * group, head_size)
  entries = pages.Entries(*(draw(2, rows, kv_heads, 16, head_size),) * 2)
  own = pages.Entries(*(draw(rows, kv_heads, 1, head_size),) * 2)
  of_8_bits, of_floats = zip(
    quantized(own, 3, 3),
    quantized(cache.pool, 3, 4),
    quantized(entries, 4, 4),
    strict=True,
  )
  live = page_kernel.live_pages(cache.table, cache.length, PAGE)

  def attend(new, pool, recent, live):
    return cached_attention.cached_attention(
      q,
      new,
      cache.replace(pool=pool, live=live),
      pages.RecentKV(recent, jnp.int32(3)),
      layer,
      interpret=True,
    )

  want = attend(*of_floats, None)
  for found in (attend(*of_8_bits, None), attend(*of_8_bits, live)):
    np.testing.assert_allclose(found, want, atol=4e-6, rtol=2e-5)


@pytest.mark.parametrize("seed", range(5))
def test_live_pages_are_those_that_hold_entries(seed):
  rng = np.random.default_rng(seed)
  rows, most = int(rng.integers(1, 9)), int(rng.integers(1, 6))
  table = rng.integers(0, 100, (rows, most)).astype(np.int32)
  lengths = rng.integers(0, most * PAGE + 1, rows).astype(np.int32)
  live = jax.device_get(
    page_kernel.live_pages(jnp.asarray(table), jnp.asarray(lengths), PAGE)
  )
  want = [
    (table[row, number], row, min(PAGE, length - number * PAGE))
    for row, length in enumerate(lengths)
    for number in range(-(-length // PAGE))
  ]
  count = int(live.count[0])
  found = zip(live.page, live.row, live.seen, strict=True)
  assert list(found)[:count] == want
  assert not live.seen[count:].any() and (live.row[count:] == rows).all()
  assert len(live.page) % page_kernel.PAGES_PER_STEP == 0
