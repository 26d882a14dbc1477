"""The GPU kernel of queries, keys and values beside XLA's operations."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.lab.compile import topology
from azr_jax.models import (
  cached_attention,
  gpu_page_kernel,
  gpu_projection_kernel,
  pages,
  sampling_params,
  transformer,
)
from azr_jax.models.config import Llama3RopeScaling, ModelConfig
from azr_jax.models.presets import PRESETS
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.settings import ShardingSettings
from azr_jax.rollout import engine
from azr_jax.rollout.build import build_engine
from azr_jax.rollout.settings import PROJECTIONS, SamplerSettings

CONFIG = ModelConfig(
  vocab_size=64,
  hidden_size=48,
  num_layers=2,
  num_heads=6,
  num_kv_heads=2,
  head_size=32,
  mlp_size=64,
  rope_theta=1e4,
  norm_eps=1e-2,
  tie_embeddings=True,
  max_positions=512,
  qkv_bias=True,
)


def one_device(devices=1, **axes):
  sizes = {"data": 1, "fsdp": 1, "tensor": 1} | axes
  return mesh_lib.make_mesh(sizes, jax.devices()[:devices])


def draw(model, config):
  """Returns random parameters of a model with joined kernels."""
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype),
    nn.unbox(transformer.abstract_params(model)),
  )
  return sampling_params.fuse(params, config)


def hidden(config, rows, tokens, mesh, *, in_kernel):
  """Returns the decoder's hidden states, with or without the kernel."""
  plain = transformer.Transformer(config)
  project = gpu_projection_kernel.HeadProjection(mesh, config, interpret=True)
  model = plain.clone(fused=True, project=project if in_kernel else None)
  rng = np.random.default_rng(1)
  ids = jnp.asarray(rng.integers(0, config.vocab_size, (rows, tokens)))
  positions = jnp.asarray(rng.integers(0, config.max_positions, (rows, 1)))
  run: Any = jax.jit(model.apply)
  text = str(jax.make_jaxpr(run)({"params": draw(plain, config)}, ids, ids))
  states, _ = run(
    {"params": draw(plain, config)},
    ids,
    positions + jnp.arange(tokens)[None, :],
  )
  return states, "pallas_call" in text


@pytest.mark.parametrize(
  "changes, rows, tokens",
  [
    ({}, 5, 1),
    ({}, 16, 4),
    ({"qkv_bias": False, "hidden_size": 80}, 3, 1),
    # Several programs per head, and several steps over input channels.
    ({"head_size": 128, "hidden_size": 256, "num_heads": 2}, 4, 1),
    ({"rope_scaling": Llama3RopeScaling(8.0, 1.0, 4.0, 64)}, 20, 1),
  ],
)
def test_a_decoder_computes_the_same_with_the_kernel(changes, rows, tokens):
  config, mesh = dataclasses.replace(CONFIG, **changes), one_device()
  found, is_kernel = hidden(config, rows, tokens, mesh, in_kernel=True)
  expected, _ = hidden(config, rows, tokens, mesh, in_kernel=False)
  assert is_kernel
  np.testing.assert_allclose(found, expected, atol=2e-5, rtol=2e-5)


def test_more_tokens_than_the_kernel_takes_are_left_to_xla():
  found, is_kernel = hidden(CONFIG, 13, 5, one_device(), in_kernel=True)
  expected, _ = hidden(CONFIG, 13, 5, one_device(), in_kernel=False)
  assert not is_kernel
  np.testing.assert_array_equal(found, expected)


def test_each_device_computes_its_own_rows():
  """Two devices take twice as many tokens, and each its own positions."""
  mesh = one_device(2, data=2)
  found, is_kernel = hidden(CONFIG, 16, 8, mesh, in_kernel=True)
  expected, _ = hidden(CONFIG, 16, 8, mesh, in_kernel=False)
  assert is_kernel
  np.testing.assert_allclose(found, expected, atol=2e-5, rtol=2e-5)


def test_which_decoders_and_meshes_have_the_kernel(monkeypatch):
  half = jnp.bfloat16

  def has_kernel(changes=None, dtype=half, **axes):
    devices = 2 if axes else 1
    config = dataclasses.replace(CONFIG, **(changes or {}))
    mesh = one_device(devices, **axes)
    return gpu_projection_kernel.make(mesh, config, dtype) is not None

  assert not has_kernel()  # It is a CPU.
  monkeypatch.setattr(mesh_lib, "platform", lambda mesh: "gpu")
  assert has_kernel() and has_kernel(data=2)
  # Devices that hold a part of the weights leave the product to XLA.
  assert not has_kernel(tensor=2) and not has_kernel(fsdp=2)
  assert not has_kernel(dtype=jnp.float32)
  assert not has_kernel({"qk_norm": True})
  assert not has_kernel({"head_size": 96}) and not has_kernel({"head_size": 16})
  assert not has_kernel({"hidden_size": 40})


@pytest.mark.parametrize(
  "kernel_dtype, is_chosen, is_used",
  [
    (None, True, True),
    (None, False, False),
    (jnp.dtype(jnp.int8), True, False),
  ],
)
def test_samplers_on_gpus_use_the_kernel_that_is_chosen_for_16_bits(
  kernel_dtype, is_chosen, is_used, monkeypatch
):
  monkeypatch.setattr(mesh_lib, "platform", lambda mesh: "gpu")
  model = transformer.Transformer(
    CONFIG, jnp.dtype(jnp.bfloat16), kernel_dtype=kernel_dtype
  )
  found = engine.sampling_model(
    model,
    one_device(),
    ShardingSettings().rules(),
    unrolled=True,
    has_projection_kernel=is_chosen,
  )
  assert found.fused and (found.project is not None) == is_used


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_a_setting_chooses_the_kernel(projection, monkeypatch):
  monkeypatch.setattr(mesh_lib, "platform", lambda mesh: "gpu")
  built = build_engine(
    transformer.Transformer(CONFIG, jnp.dtype(jnp.bfloat16)),
    one_device(),
    ShardingSettings().rules(),
    SamplerSettings(projection=projection, prompt_buckets=(16,)),
  )
  assert (built.model.project is not None) == (projection == "kernel")


@pytest.mark.slow
@pytest.mark.parametrize("rows", [64, 1])
@pytest.mark.parametrize("name", ["qwen2.5-1.5b", "smollm2-135m"])
def test_a_gpu_attends_to_the_kernels_result_without_a_copy(name, rows):
  """The program has three kernels, and a fusion of sines and cosines."""
  pytest.importorskip("jax_cuda13_plugin", reason="XLA:GPU is not installed")
  gpu, c = "h100:1", PRESETS[name]
  D, H, K, E = c.hidden_size, c.num_heads, c.num_kv_heads, c.head_size
  mesh = mesh_lib.make_mesh(
    {"data": 1, "fsdp": 1, "tensor": 1}, topology.devices(gpu)
  )

  def array(*shape, dtype=jnp.bfloat16) -> Any:
    sharding = mesh_lib.replicated(mesh)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

  def decode(x, scale, kernel, positions, pool, table, shares, recent, layer):
    q, k, v = gpu_projection_kernel.project(
      x, scale, kernel, None, positions, c
    )
    cache = pages.PagedCache(pool, table, table[:, 0], table[:, 0], shares)
    return cached_attention.cached_attention(
      *(q, pages.make_entries(k, v, pool), cache),
      *(pages.RecentKV(recent, layer), layer),
      platform="gpu",
    )

  lengths = jax.ShapeDtypeStruct((rows,), jnp.int32)
  shares = jax.eval_shape(
    lambda lengths: gpu_page_kernel.row_shares(lengths, 128, K), lengths
  )
  compiled = (
    jax.jit(decode)
    .lower(
      array(rows, 1, D),
      array(D, dtype=jnp.float32),
      array(D, K, H // K + 2, E),
      array(rows, 1, dtype=jnp.int32),
      pages.Pool(array(2, 90, K, E, 128), array(2, 90, K, 128, E)),
      array(rows, 5, dtype=jnp.int32),
      jax.tree.map(lambda x: array(*x.shape, dtype=x.dtype), shares),
      pages.Entries(*(array(2, rows, K, 128, E),) * 2),
      array(dtype=jnp.int32),
    )
    .compile(compiler_options={**topology.compiler_options(gpu)})
  )
  text = compiled.as_text()
  assert text is not None
  entry = text[text.index("ENTRY") :]
  assert entry.count('custom_call_target="__gpu$xla.gpu.triton"') == 3
  fusions = [line for line in entry.splitlines() if " fusion(" in line]
  assert all("sine" in line for line in fusions) and "copy(" not in entry
