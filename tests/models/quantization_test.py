"""Quantization error of 8-bit values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from rounded_kernels import rounded

from azr_jax.models import products, quantization, sampling_params, transformer
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.settings import ShardingSettings

CONFIG = ModelConfig(
  vocab_size=16,
  hidden_size=32,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_size=8,
  mlp_size=48,
  rope_theta=1e4,
  norm_eps=1e-6,
  max_positions=64,
  tie_embeddings=True,
  qkv_bias=True,
)
MODEL = transformer.Transformer(CONFIG)


def drawn(*shape):
  values = np.random.default_rng(len(shape)).normal(size=shape)
  # Channels of very different magnitude, and one of zeros.
  values[..., 0], values[..., 1] = 0.0, 1e4 * values[..., 1]
  return jnp.asarray(values, jnp.float32)


@pytest.mark.parametrize("axes", [(0,), (0, 1), (1,)])
def test_int8_is_within_half_a_step(axes):
  values = drawn(7, 5, 6)
  numbers, scale = quantization.quantize(values, jnp.int8, axes)
  assert numbers.dtype == jnp.int8 and scale.dtype == jnp.float32
  largest = np.abs(np.asarray(values)).max(axis=axes)
  np.testing.assert_allclose(scale, largest / 127, rtol=1e-6, atol=1e-30)
  error = np.abs(quantization.dequantize(numbers, scale, axes) - values)
  step = np.expand_dims(largest / 127, axes)
  assert (error <= 0.5001 * step).all()
  # The largest value per scale is exact.
  assert np.abs(np.asarray(numbers)).max(axis=axes)[largest > 0].min() == 127


def test_fp8_has_three_bits_after_the_point():
  values = drawn(9, 8)
  numbers, scale = quantization.quantize(values, jnp.float8_e4m3fn, (0,))
  found = quantization.dequantize(numbers, scale, (0,))
  assert bool(jnp.isfinite(found).all())
  # Half a step of a normal number is 2^-4 of it; subnormals are denser.
  least = np.asarray(scale)[None] * 2.0**-6
  error = np.abs(found - values)
  assert (error <= np.maximum(np.abs(values), least) * 2.0**-4 * 1.001).all()


@pytest.mark.parametrize("dtype", quantization.DTYPES.values())
@pytest.mark.parametrize(
  "shape, summed", [((6, 5), 1), ((3, 4, 5), 2), ((6, 2, 5), 1)]
)
def test_a_product_is_that_with_the_numbers_and_scales(dtype, shape, summed):
  kernel = drawn(*shape)
  axes = tuple(range(summed))
  numbers, scale = quantization.quantize(kernel, dtype, axes)
  x = drawn(2, 3, *shape[:summed])
  y = products.multiply(x, numbers.astype(x.dtype), (), summed)
  whole = np.asarray(quantization.dequantize(numbers, scale, axes), np.float64)
  want = np.tensordot(np.asarray(x, np.float64), whole, axes=summed)
  found = products.rescale(y, scale)
  np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-3)


@pytest.fixture(scope="module")
def params():
  init = jax.jit(lambda key: transformer.init_params(MODEL, key))
  return init(jax.random.key(0))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unrolled", [False, True])
def test_a_quantized_decoder_is_one_with_rounded_kernels(
  params, fused, unrolled
):
  """Compares with the learner's decoder on the same rounded kernels."""
  dtype = quantization.DTYPES["int8"]
  sampling = MODEL.clone(fused=fused, unrolled=unrolled, kernel_dtype=dtype)
  tokens = jnp.arange(10, dtype=jnp.int32)[None]

  def run(model, params):
    return jax.jit(model.apply)({"params": params}, tokens, tokens)[0]

  found = run(sampling, sampling_params.convert(sampling, params))
  want = run(MODEL, rounded(params, dtype))
  np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
  assert np.abs(np.asarray(run(MODEL, params) - want)).max() > 1e-3


def test_only_kernels_of_layers_have_8_bits(params):
  model = MODEL.clone(
    dtype=jnp.bfloat16, kernel_dtype=quantization.DTYPES["int8"]
  )
  converted = sampling_params.convert(model, params)
  for path, leaf in jax.tree_util.tree_leaves_with_path(converted):
    name = path[-1].key
    want = {"kernel": jnp.int8, "scale": jnp.float32}.get(name, jnp.bfloat16)
    assert leaf.dtype == want, path
  shardings = mesh_lib.param_shardings(
    transformer.abstract_params(model),
    mesh_lib.make_mesh({"data": 2, "fsdp": 2, "tensor": 2}),
    ShardingSettings().rules(),
  )
  # Scales are sharded like the output channels of their kernels.
  mlp = shardings["layers"]["mlp"]
  assert mlp["up"]["kernel"].spec == P(None, "fsdp", "tensor")
  assert mlp["up"]["scale"].spec == P(None, "tensor")
  assert mlp["down"]["scale"].spec == P(None, "fsdp")
  placed = jax.device_put(converted, shardings)
  assert placed["layers"]["mlp"]["up"]["kernel"].dtype == jnp.int8


def test_a_layer_of_8_bits_is_half_as_large():
  wide = MODEL.clone(dtype=jnp.bfloat16)
  narrow = wide.clone(kernel_dtype=quantization.DTYPES["int8"])
  kernels = 32 * (4 + 2 + 2 + 4) * 8 + 3 * 32 * 48
  biases, norms = 2 * (4 + 2 + 2) * 8, 4 * 2 * 32
  assert sampling_params.layer_bytes(wide) == 2 * kernels + biases + norms
  scales = 4 * ((4 + 2 + 2) * 8 + 32 + 2 * 48 + 32)
  found = sampling_params.layer_bytes(narrow)
  assert found == kernels + biases + norms + scales
