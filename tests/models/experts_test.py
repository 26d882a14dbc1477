"""Experts: products by group, and layers with them on meshes and in 8 bits."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from azr_jax.models import (
  adapters,
  expert_mlps,
  expert_sharding,
  peft_io,
  presets,
  products,
  safetensors_io,
  sampling_params,
  transformer,
  weight_loading,
)
from azr_jax.models.adapters import Lora
from azr_jax.models.config import ExpertShape
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.settings import ShardingSettings
from tests import rollout_model
from tests.models import adapter_math

RULES = ShardingSettings().rules()
CONFIG = dataclasses.replace(
  rollout_model.CONFIG,
  family="qwen3_moe",
  qk_norm=True,
  experts=ExpertShape(4, 2, 24),
)
MODEL = transformer.Transformer(CONFIG)
# A row without padding, a row with two sequences, and a row of one token, whose
# experts all of its positions choose.
TOKENS = np.random.default_rng(3).integers(1, 128, (4, 12))
TOKENS[2:] = 7
SEGMENTS = np.ones_like(TOKENS)
SEGMENTS[1, 5:] = 2
SEGMENTS[3, 8:] = 0


def drawn(model, seed=0, scale=0.3):
  """Returns random parameters of a model."""
  rng = np.random.default_rng(seed)
  return jax.tree.map(
    lambda x: jnp.asarray(scale * rng.normal(size=x.shape), x.dtype),
    nn.unbox(transformer.abstract_params(model)),
  )


def value_and_gradients(model, params):
  """Returns a loss that all real tokens affect, and its gradients."""

  def loss(params):
    hidden, _ = model.apply(
      *({"params": params}, TOKENS, np.arange(12)[None] + 0 * TOKENS, SEGMENTS)
    )
    return jnp.sum(jnp.sin(hidden) * (SEGMENTS > 0)[..., None])

  return jax.jit(jax.value_and_grad(loss))(params)


def assert_near(got, want, atol=1e-5):
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=atol),
    got,
    want,
  )


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_experts_are_the_sum_over_all_by_formula(platform):
  """Expert 0 gets every token, 3 gets none, and 5 is no expert."""
  rng = np.random.default_rng(0)
  T, X, D, F = 40, 5, 32, 48
  x = rng.normal(size=(2, T // 2, D)).astype(np.float32)
  kernels = [
    (rng.normal(size=shape) / 5).astype(np.float32)
    for shape in ((X, D, F), (X, D, F), (X, F, D))
  ]
  weights = rng.uniform(size=(2, T // 2, 2)).astype(np.float32)
  others = rng.choice([1, 2, 4, 5], T)
  chosen = np.stack([np.zeros(T), others], -1).reshape(2, T // 2, 2)
  chosen = jnp.asarray(chosen, jnp.int32)

  def by_formula(x, weights, kernels):
    gate, up = (jnp.einsum("bsd,xdf->bsxf", x, w) for w in kernels[:2])
    y = jnp.einsum("bsxf,xfd->bsxd", jax.nn.silu(gate) * up, kernels[2])
    is_chosen = jax.nn.one_hot(chosen, X)
    return jnp.einsum("bsxd,bskx,bsk->bsd", y, is_chosen, weights)

  def by_groups(x, weights, kernels):
    each = expert_mlps.Projections(*map(expert_mlps.ExpertParams, kernels))
    return expert_mlps.compute(
      *(x, weights, chosen, each, 1.0), platform=platform, interpret=True
    )

  want, got = (
    jax.jit(
      jax.value_and_grad(
        lambda *arrays, run=run: jnp.sum(jnp.sin(run(*arrays))),
        argnums=(0, 1, 2),
      )
    )(jnp.asarray(x), jnp.asarray(weights), [*map(jnp.asarray, kernels)])
    for run in (by_formula, by_groups)
  )
  assert_near(got, want)
  assert not any(np.any(grad[3]) for grad in got[1][2])


@pytest.mark.slow
@pytest.mark.parametrize(
  ("sizes", "tokens"),
  [
    ({"fsdp": 2, "expert": 2, "tensor": 2}, 4096),
    ({"fsdp": 2, "expert": 2, "tensor": 2}, 1),
    ({"expert": 4}, 1),
    ({"fsdp": 2, "context": 2}, 4096),
  ],
)
def test_a_mesh_changes_no_gradient(sizes, tokens):
  params = drawn(MODEL)
  devices = jax.devices()[: int(np.prod([*sizes.values()]))]
  mesh = mesh_lib.make_mesh(sizes, devices)
  boxed = transformer.abstract_params(MODEL)
  model = MODEL.clone(
    multiply=products.make(mesh, RULES),
    compute_experts=expert_sharding.make(mesh, RULES, tokens=tokens),
  )
  shardings = mesh_lib.param_shardings(boxed, mesh, RULES)
  got = value_and_gradients(model, jax.device_put(params, shardings))
  assert_near(got, value_and_gradients(MODEL, params), atol=2e-5)


def test_adapters_of_experts_are_small_and_merge(tmp_path, one_device_mesh):
  lora = Lora(16, 8.0)
  model = MODEL.clone(lora=lora)
  base = drawn(MODEL)
  trained = drawn(model, seed=1)
  trained = adapters.adapters_of(trained)
  own = trained["layers"]["experts"]["down_lora"]
  assert own["a"].shape == (2, 4, 24, 2) and own["b"].shape == (2, 4, 2, 32)
  count = adapters.parameter_count(CONFIG, lora)
  assert count == sum(x.size for x in jax.tree.leaves(trained))
  whole = adapters.join(base, trained)
  safetensors_io.save(whole, CONFIG, tmp_path, dtype="float32", lora=lora)
  merged = weight_loading.load_params(
    *(CONFIG, safetensors_io.SafetensorsReader(tmp_path)),
    *(one_device_mesh, RULES),
  )
  want, _ = value_and_gradients(MODEL, merged)
  np.testing.assert_allclose(
    value_and_gradients(model, whole)[0], want, rtol=1e-4
  )
  with pytest.raises(ValueError, match=r"lora.targets=.*expected some of q"):
    peft_io.save(trained, CONFIG, lora, "hf:a/b", tmp_path / "adapter")
  stacked = model.clone(lora=dataclasses.replace(lora, stacked=2))
  with pytest.raises(ValueError, match=r"lora.targets=.*expected some of q"):
    transformer.abstract_params(stacked)


def test_kernels_are_quantized_layer_by_layer_on_loading(tmp_path):
  """The same bits as those of the whole parameters, on the same devices."""
  params = drawn(MODEL)
  safetensors_io.save(params, CONFIG, tmp_path, dtype="float32")
  mesh = mesh_lib.make_mesh({"fsdp": 2, "expert": 2}, jax.devices()[:4])
  reader = safetensors_io.SafetensorsReader(tmp_path)
  loaded = weight_loading.load_params(
    *(CONFIG, reader, mesh, RULES), kernel_dtype=jnp.int8
  )
  want = sampling_params.quantize(params, jnp.int8)
  jax.tree.map(np.testing.assert_array_equal, loaded, want)
  gate = loaded["layers"]["experts"]["gate"]["kernel"]
  assert gate.sharding.shard_shape(gate.shape) == (2, 2, 16, 24)


@pytest.mark.slow
def test_adapters_learn_on_experts_of_8_bits():
  """As on the base that these bits and scales stand for."""
  model = MODEL.clone(lora=Lora(8, 8.0), kernel_dtype=jnp.dtype(jnp.int8))
  base = sampling_params.quantize(drawn(MODEL), jnp.int8)
  assert base["layers"]["experts"]["router"]["kernel"].dtype == jnp.float32
  trained = adapters.adapters_of(drawn(model, seed=1))

  def of_adapters(model, base):
    def loss(trained):
      hidden, _ = model.apply(
        {"params": adapters.join(base, trained)}, TOKENS, 0 * TOKENS
      )
      return jnp.sum(jnp.sin(hidden))

    return jax.jit(jax.value_and_grad(loss))(trained)

  got = of_adapters(model, base)
  want = of_adapters(
    model.clone(kernel_dtype=None), adapter_math.dequantized(base)
  )
  assert_near(got, want, atol=1e-4)


def test_a_token_has_the_cost_of_its_own_experts():
  """A token of `moe-tiny` has as many MLP channels as one of `azr-tiny`."""
  moe, dense = (presets.PRESETS[name] for name in ("moe-tiny", "azr-tiny"))
  routers = moe.num_layers * moe.hidden_size * 8
  norms = moe.num_layers * 2 * moe.head_size
  active = presets.active_parameter_count(moe)
  assert active == presets.parameter_count(dense) + routers + norms
  large = presets.PRESETS["qwen3-30b-a3b"]
  assert round(presets.parameter_count(large) / 1e9, 1) == 30.5
  assert round(presets.active_parameter_count(large) / 1e9, 1) == 3.4


@pytest.mark.slow
@pytest.mark.parametrize("is_spread", [True, False])
def test_gradients_are_those_of_transformers(
  is_spread, tmp_path, one_device_mesh
):
  """The same token at each position overloads some experts."""
  import torch
  import transformers

  from azr_jax.models import weight_names

  config = transformers.AutoConfig.for_model(
    "qwen3_moe",
    **dict(vocab_size=48, hidden_size=32, num_hidden_layers=2, head_dim=16),
    **dict(num_attention_heads=4, num_key_value_heads=2, num_experts=6),
    **dict(num_experts_per_tok=2, moe_intermediate_size=24),
    norm_topk_prob=True,
    attn_implementation="eager",
  )
  torch.manual_seed(0)
  model = transformers.AutoModelForCausalLM.from_config(config)
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.normal_(std=0.3)
  model.save_pretrained(tmp_path)
  tokens = np.random.default_rng(0).integers(0, 48, (2, 20))
  tokens = tokens if is_spread else np.full_like(tokens, 5)
  torch.sin(model(torch.tensor(tokens)).logits).mean().backward()
  ours = safetensors_io.read_config(tmp_path)
  params = weight_loading.load_params(
    *(ours, safetensors_io.SafetensorsReader(tmp_path)),
    *(one_device_mesh, RULES | {"experts": None}),
  )

  def loss(params):
    hidden, _ = transformer.Transformer(ours).apply(
      {"params": params}, tokens, np.arange(20)[None] + 0 * tokens
    )
    logits = hidden @ transformer.unembedding(params, ours)
    return jnp.mean(jnp.sin(logits))

  grads = jax.jit(jax.grad(loss))(params)
  largest = max(np.max(np.abs(x)) for x in jax.tree.leaves(grads))
  # Saving splits the gradients like the parameters.
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.copy_(parameter.grad)
  model.save_pretrained(tmp_path / "grads")
  reader = safetensors_io.SafetensorsReader(tmp_path / "grads")
  empty = 0
  for entry in weight_names.entries(ours):
    for index in entry.indices(ours.num_layers):
      got = weight_loading.fetch(grads, entry, index)
      name = entry.tensor(index)
      whole = tuple(slice(0, n) for n in reader.shape(name))
      want = reader.read(name, whole)
      np.testing.assert_allclose(got, want, atol=1e-5 * largest)
      empty += entry.experts > 0 and not np.any(want)
  assert is_spread or empty >= 3 * 2 * 4
