"""Products with kernels sharded over devices, and fused kernels."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typed import present

from azr_jax.models import products, sampling_params, transformer
from azr_jax.models.config import ModelConfig
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.settings import ShardingSettings

RULES = ShardingSettings().rules()
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


def mesh_of(data, fsdp, tensor):
  sizes = {"data": data, "fsdp": fsdp, "tensor": tensor}
  return mesh_lib.make_mesh(sizes, jax.devices()[: data * fsdp * tensor])


def drawn(*shape):
  rng = np.random.default_rng(len(shape))
  return jnp.asarray(rng.normal(size=shape), jnp.float32)


def placed(mesh, x, kernel, axes):
  spec = mesh_lib.param_spec(axes, kernel.shape, mesh, RULES)
  return (
    jax.device_put(x, mesh_lib.batch_sharding(mesh)),
    jax.device_put(kernel, jax.NamedSharding(mesh, spec)),
  )


@pytest.mark.parametrize(
  "axes, shape, summed",
  [
    (("embed", "mlp"), (32, 24), 1),
    (("mlp", "embed"), (24, 32), 1),
    (("embed", "heads", "head_size"), (32, 4, 6), 1),
    (("heads", "head_size", "embed"), (4, 6, 32), 2),
    (("embed", "kv_heads", None, "head_size"), (32, 2, 3, 6), 1),
    (("embed", "mlp"), (33, 24), 1),  # Not divisible, so not sharded.
  ],
)
@pytest.mark.parametrize("sizes", [(1, 8, 1), (2, 2, 2)])
def test_a_gathered_product_and_its_gradients_are_the_plain_ones(
  axes, shape, summed, sizes
):
  mesh = mesh_of(*sizes)
  x, kernel = drawn(8, 5, *shape[:summed]), drawn(*shape)

  def value_and_grads(multiply):
    def loss(x, kernel):
      return jnp.sum(jnp.sin(multiply(x, kernel, axes, summed)))

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))

  want = value_and_grads(products.multiply)(x, kernel)
  run = value_and_grads(products.make(mesh, RULES))
  got = run(*placed(mesh, x, kernel, axes))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
    got,
    want,
  )


def test_kernels_are_gathered_and_their_gradients_scattered():
  mesh = mesh_of(1, 8, 1)
  axes = ("embed", "mlp")
  x, kernel = placed(mesh, drawn(8, 5, 32), drawn(32, 24), axes)
  multiply = products.make(mesh, RULES)

  def loss(kernel, x):
    return jnp.sum(jnp.sin(multiply(x, kernel, axes, 1)))

  compiled = jax.jit(jax.grad(loss)).lower(kernel, x).compile()
  text = present(compiled.as_text())
  assert "all-gather" in text and "reduce-scatter" in text
  assert "collective-permute" not in text


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_joined_projections_of_gathered_kernels_change_no_gradient(qkv_bias):
  """A GPU's form of a layer, with parameters that two devices share."""
  mesh = mesh_of(2, 2, 1)
  model = transformer.Transformer(
    dataclasses.replace(CONFIG, qkv_bias=qkv_bias)
  )
  joined = model.clone(
    joined=True, inlined=True, multiply=products.make(mesh, RULES)
  )
  boxed = transformer.abstract_params(model)
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype),
    nn.unbox(boxed),
  )
  shardings = mesh_lib.param_shardings(boxed, mesh, RULES)
  tokens = jnp.asarray(rng.integers(0, 16, (4, 7)))
  positions = jnp.broadcast_to(jnp.arange(7), tokens.shape)

  def gradient(model, params):
    def loss(params):
      hidden, _ = model.apply({"params": params}, tokens, positions)
      return jnp.sum(jnp.sin(hidden))

    return jax.jit(jax.grad(loss))(params)

  want = gradient(model, params)
  got = gradient(joined, jax.device_put(params, shardings))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
    got,
    want,
  )


def test_a_product_of_rows_is_the_plain_one():
  assert products.make(mesh_of(4, 1, 2), RULES) is products.multiply_rows
  x = jax.random.normal(jax.random.key(0), (2, 3, 4, 5))
  kernel = jax.random.normal(jax.random.key(1), (4, 5, 6, 7))
  for summed, of in ((2, x), (1, x[..., 0])):
    w = kernel[:, 0] if summed == 1 else kernel
    found = products.multiply_rows(of, w, ("embed",) * w.ndim, summed)
    expected = np.tensordot(of, w, summed)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_kernel_gradients_on_a_cpu_transpose_nothing():
  x, kernel = jnp.ones((2, 8, 16)), jnp.ones((16, 4, 8))
  product = products.make(mesh_of(4, 1, 2), RULES)

  def loss(kernel):
    return jnp.sum(product(x, kernel, ("embed", "heads", "head_size"), 1) ** 2)

  text = present(jax.jit(jax.grad(loss)).lower(kernel).compile().as_text())
  assert " transpose(" not in text and " copy(" not in text


@pytest.mark.parametrize("unrolled", [False, True])
@pytest.mark.parametrize("qkv_bias, qk_norm", [(True, False), (False, True)])
def test_the_parameters_of_sampling_compute_the_same(
  qkv_bias, qk_norm, unrolled
):
  config = dataclasses.replace(CONFIG, qkv_bias=qkv_bias, qk_norm=qk_norm)
  model = transformer.Transformer(config)
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype),
    nn.unbox(transformer.abstract_params(model)),
  )
  tokens = jnp.asarray(rng.integers(0, 16, (2, 7)))
  positions = jnp.broadcast_to(jnp.arange(7), tokens.shape)
  fused = model.clone(fused=True, unrolled=unrolled)
  joined = sampling_params.convert(fused, params)
  shapes = nn.unbox(transformer.abstract_params(fused))
  assert jax.tree.map(jnp.shape, joined) == jax.tree.map(jnp.shape, shapes)
  want, _ = jax.jit(model.apply)({"params": params}, tokens, positions)
  got, _ = jax.jit(fused.apply)({"params": joined}, tokens, positions)
  np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
  "tensor, fits", [(1, True), (2, True), (4, False), (8, True)]
)
def test_kernels_are_joined_where_heads_and_key_heads_are_split_alike(
  tensor, fits
):
  """Four heads and two key heads; eight devices divide neither."""
  assert sampling_params.fits(CONFIG, mesh_of(1, 1, tensor), RULES) is fits
