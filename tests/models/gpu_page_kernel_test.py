"""The GPU kernels' shares, and the kernels on several devices."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from typed import instance_of

from azr_jax.lab.compile import topology
from azr_jax.models import cached_attention, gpu_page_kernel, pages
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.rollout.settings import SamplerSettings

PAGE, HEAD_SIZE, LAYERS = 32, 16, 2
# Compiled once for all tests of a shape.
ATTEND = jax.jit(
  functools.partial(cached_attention.cached_attention, interpret=True)
)


def draw(rng, *shape):
  return jnp.asarray(rng.normal(size=shape), jnp.float32)


def cache_of(rng, lengths, kv_heads, devices=1):
  """Returns a cache whose tables index each device's own pages."""
  rows, most = len(lengths), -(-max(lengths) // PAGE) + 1
  own = rows // devices * most
  table = [rng.permutation(own).reshape(-1, most) for _ in range(devices)]
  count = own * devices
  length = jnp.asarray(lengths, jnp.int32)
  return pages.PagedCache(
    pages.Pool(
      draw(rng, LAYERS, count, kv_heads, HEAD_SIZE, PAGE),
      draw(rng, LAYERS, count, kv_heads, PAGE, HEAD_SIZE),
    ),
    jnp.asarray(np.concatenate(table), jnp.int32),
    length,
    pages.by_length(length),
  )


def tokens_of(rng, rows, kv_heads, group, room):
  """Returns a query, its own key and value, and space for newer ones."""

  def entries(*shape):
    return pages.Entries(draw(rng, *shape), draw(rng, *shape))

  return (
    draw(rng, rows, 1, kv_heads * group, HEAD_SIZE),
    entries(rows, kv_heads, 1, HEAD_SIZE),
    entries(LAYERS, rows, kv_heads, room, HEAD_SIZE),
  )


@pytest.mark.parametrize("seed", range(5))
def test_shares_hold_every_entry_once(seed):
  rng = np.random.default_rng(seed)
  page_size = (16, 48, 512)[seed % 3]
  lengths = rng.integers(0, 10_000, int(rng.integers(1, 40)))
  lengths[rng.random(lengths.size) < 0.3] = 0
  kv_heads = int(rng.integers(1, 9))
  shares = jax.device_get(
    gpu_page_kernel.row_shares(
      jnp.asarray(lengths, jnp.int32), page_size, kv_heads
    )
  )
  first, block = shares.first, min(page_size & -page_size, 64)
  assert first[0] == 0 and (np.diff(first) >= 0).all()
  for row, length in enumerate(lengths):
    of_row = slice(first[row], first[row + 1])
    start, end = shares.start[of_row], shares.end[of_row]
    assert (shares.row[of_row] == row).all() and (start < end).all()
    # Shares are contiguous, and each one starts at a block boundary.
    bounds = [0, *end] if length else [0]
    assert bounds[:-1] == start.tolist() and bounds[-1] == length
    assert (start % block == 0).all()
  rest = slice(first[-1], None)
  assert (shares.start[rest] == shares.end[rest]).all()
  # Many programs read a long row: none reads more than a mean row.
  longest = (shares.end - shares.start).max()
  assert longest <= max(block, lengths.mean() + 2 * block)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 69])
def test_newer_tokens_may_end_within_a_block(count):
  rng = np.random.default_rng(0)
  lengths = (33, 0, 5)
  cache = cache_of(rng, lengths, kv_heads=2)
  q, new, entries = tokens_of(rng, len(lengths), 2, group=3, room=70)
  recent = pages.RecentKV(entries, jnp.int32(count))
  live = gpu_page_kernel.row_shares(cache.length, PAGE, 2)

  found, want = (
    ATTEND(q, new, some, recent, jnp.int32(1))
    for some in (cache.replace(live=live), cache)
  )
  np.testing.assert_allclose(found, want, atol=2e-6, rtol=2e-5)


@pytest.mark.slow
def test_devices_read_their_own_rows_and_heads():
  rng = np.random.default_rng(0)
  lengths, kv_heads = (70, 0, 1, 300, 32, 33, 64, 8), 4
  mesh = mesh_lib.make_mesh(
    {"data": 2, "fsdp": 1, "tensor": 2}, jax.devices()[:4]
  )
  cache = cache_of(rng, lengths, kv_heads, devices=2)
  q, new, entries = tokens_of(rng, len(lengths), kv_heads, group=2, room=8)
  recent = pages.RecentKV(entries, jnp.int32(5))
  by_row = PartitionSpec(mesh_lib.BATCH_AXES)
  live = jax.shard_map(
    functools.partial(cached_attention.list_pages, platform="gpu"),
    mesh=mesh,
    in_specs=(mesh_lib.cache_sharding(mesh, kv_heads).spec, by_row, by_row),
    out_specs=by_row,
    check_vma=False,
  )(cache.pool, cache.table, cache.length)
  attend = jax.jit(cached_attention.make(mesh, kv_heads, interpret=True))
  layer = jnp.int32(0)
  np.testing.assert_allclose(
    attend(q, new, cache.replace(live=live), recent, layer),
    attend(q, new, cache, recent, layer),
    atol=2e-6,
    rtol=2e-5,
  )


@pytest.mark.parametrize(
  "page_size, head_size, dtype, fits",
  [
    (512, 128, jnp.bfloat16, True),
    (48, 64, jnp.float16, True),
    (8, 128, jnp.bfloat16, False),
    (512, 96, jnp.bfloat16, False),
    (512, 128, jnp.float32, False),
    (512, 128, jnp.int8, False),
  ],
)
def test_which_caches_the_kernels_read(page_size, head_size, dtype, fits):
  assert gpu_page_kernel.supports(page_size, head_size, dtype) is fits


def test_attention_is_a_kernel_on_a_gpu_that_can_read_the_cache():
  def lists(platform, head_size=128, dtype=jnp.bfloat16, **settings):
    settings = SamplerSettings(**settings)
    return settings.lists_pages(platform, head_size, dtype)

  assert lists("gpu") and lists("tpu") and not lists("cpu")
  assert not lists("gpu", attention="loop")
  assert not lists("gpu", dtype=jnp.float32)
  assert not lists("gpu", kv_cache_dtype="int8")
  assert lists("tpu", head_size=96, kv_cache_dtype="int8")
  with pytest.raises(ValueError, match="attention='kernel': expected loop"):
    lists("gpu", head_size=96, attention="kernel")


@pytest.mark.slow
@pytest.mark.parametrize(
  "rows, kv_heads, group, page_size, tokens",
  [(512, 1, 7, 512, 1), (64, 4, 7, 512, 1), (96, 8, 4, 128, 1)]
  + [(64, 1, 7, 512, 4), (64, 2, 3, 16, 1)],
)
def test_the_kernels_compile_for_a_gpu_that_is_not_here(
  rows, kv_heads, group, page_size, tokens
):
  """Compiles for a pool of more than 4 GiB, which is read in place."""
  pytest.importorskip("jax_cuda13_plugin", reason="XLA:GPU is not installed")
  name, head_size, layers, room = "h200:1", 128, 28, 133
  mesh = mesh_lib.make_mesh(
    {"data": 1, "fsdp": 1, "tensor": 1}, topology.devices(name)
  )
  per_row = -(-14_240 // page_size)

  def array(*shape, dtype=jnp.bfloat16) -> Any:
    sharding = mesh_lib.replicated(mesh)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

  def decode(q, new, pool, table, length, recent, layer):
    listed = cached_attention.list_pages(pool, table, length, "gpu")
    shares = instance_of(pages.RowShares, listed)
    return gpu_page_kernel.attend(
      q, new, pool, table, shares, pages.RecentKV(recent, layer), layer
    )

  count = 2**23 // (page_size * kv_heads)
  compiled = (
    jax.jit(decode)
    .lower(
      array(rows, kv_heads, group * tokens, head_size),
      pages.Entries(*(array(rows, kv_heads, tokens, head_size),) * 2),
      pages.Pool(
        array(layers, count, kv_heads, head_size, page_size),
        array(layers, count, kv_heads, page_size, head_size),
      ),
      array(rows, per_row, dtype=jnp.int32),
      array(rows, dtype=jnp.int32),
      pages.Entries(*(array(layers, rows, kv_heads, room, head_size),) * 2),
      array(dtype=jnp.int32),
    )
    .compile(compiler_options={**topology.compiler_options(name)})
  )
  text, memory = compiled.as_text(), compiled.memory_analysis()
  assert text is not None and memory is not None
  assert text.count('custom_call_target="__gpu$xla.gpu.triton"') == 2
  assert memory.temp_size_in_bytes < 32 * 2**20


@pytest.mark.slow
def test_rows_that_go_on_differently_compile_for_several_gpus():
  """Drafts append a different number of tokens to each row."""
  pytest.importorskip("jax_cuda13_plugin", reason="XLA:GPU is not installed")
  name = "h200:8"
  mesh = mesh_lib.make_mesh(
    {"data": 2, "fsdp": 1, "tensor": 4}, topology.devices(name)
  )
  by_row = PartitionSpec(mesh_lib.BATCH_AXES)
  spec = PartitionSpec(None, mesh_lib.BATCH_AXES, "tensor")

  def array(*shape, dtype=jnp.bfloat16, spec=spec) -> Any:
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

  compiled = (
    jax.jit(pages.append, donate_argnums=0)
    .lower(
      pages.Entries(*(array(28, 1024, 4, 132, 128),) * 2),
      pages.Entries(*(array(28, 1024, 4, 4, 128),) * 2),
      array(1024, dtype=jnp.int32, spec=by_row),
    )
    .compile(compiler_options={**topology.compiler_options(name)})
  )
  memory = compiled.memory_analysis()
  assert memory is not None
  # Entries are written in place.
  assert memory.temp_size_in_bytes < 64 * 2**20
