"""The compilers of TPUs and GPUs take kernels with attention sinks.

With the heads of gpt-oss: 64 query heads, 8 key heads, 64 channels, and a
window of 128 in every other layer.
"""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from azr_jax.lab.compile import topology
from azr_jax.models import attention, cached_attention, pages
from azr_jax.parallel import mesh as mesh_lib
from tests.typed import present

H, K, E, WINDOWS = 64, 8, 64, (0, 128)
# What a decode step and an update call on each device.
DEVICES = {
  "v5e:1x1": ("libtpu", ("tpu_custom_call",), ("tpu_custom_call",)),
  "h100:1": ("jax_cuda13_plugin", ("triton",), ("fmha", "Backward")),
}


def lower(name, f, *arrays):
  """Returns the compiled program of some arrays' shapes, and its text."""
  package, *_ = DEVICES[name]
  pytest.importorskip(package, reason="the compiler is not installed")
  compiled = (
    jax.jit(f)
    .lower(*arrays)
    .compile(compiler_options={**topology.compiler_options(name)})
  )
  return present(compiled.as_text())


def shapes(name):
  """Returns a mesh of one device, and a function that makes shapes on it."""
  pytest.importorskip(DEVICES[name][0], reason="the compiler is not installed")
  mesh = mesh_lib.make_mesh({"data": 1}, topology.devices(name)[:1])
  whole = mesh_lib.replicated(mesh)

  def array(*shape, dtype=jnp.bfloat16) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=whole)

  return mesh, array


@pytest.mark.slow
@pytest.mark.parametrize("name", DEVICES)
def test_decoding_compiles(name):
  mesh, array = shapes(name)
  attend = cached_attention.make(mesh, K)
  L, B, M, C, room = 4, 64, 17, 256, 32

  def decode(q, new, pool, table, length, recent, layer, sinks):
    platform = mesh_lib.platform(mesh)
    live = cached_attention.list_pages(pool, table, length, platform, WINDOWS)
    cache = pages.PagedCache(pool, table, length, pages.by_length(length), live)
    cache = pages.of_window(cache, WINDOWS, layer % 2)
    recent = pages.RecentKV(recent, jnp.int32(5))
    return attend(q, new, cache, recent, layer, sinks)

  text = lower(
    *(name, decode, array(B, 1, H, E)),
    pages.Entries(array(B, K, 1, E), array(B, K, 1, E)),
    pages.Pool(array(L, B * M, K, E, C), array(L, B * M, K, C, E)),
    *(array(B, M, dtype=jnp.int32), array(B, dtype=jnp.int32)),
    pages.Entries(array(L, B, K, room, E), array(L, B, K, room, E)),
    *(array(dtype=jnp.int32), array(H)),
  )
  assert all(call in text for call in DEVICES[name][1])


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", DEVICES)
def test_training_compiles(name, window):
  mesh, array = shapes(name)
  attend = attention.make("auto", mesh, jnp.bfloat16, 8)
  S = 4096

  def loss(q, k, v, sinks, segments):
    out = attend(q, k, v, segments, window, sinks)
    return jnp.sum(out.astype(jnp.float32) ** 2)

  text = lower(
    *(name, jax.grad(loss, argnums=(0, 1, 2, 3))),
    *(array(1, S, H, E), array(1, S, K, E), array(1, S, K, E), array(H)),
    array(1, S, dtype=jnp.int32),
  )
  assert all(call in text for call in DEVICES[name][2])
