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
  grouped_products,
  operations,
  presets,
  products,
  safetensors_io,
  sampling_params,
  transformer,
  weight_loading,
)
from azr_jax.models.adapters import Lora
from azr_jax.models.config import ClampedSwiglu, ExpertShape
from azr_jax.parallel import mesh as mesh_lib
from azr_jax.parallel.settings import ShardingSettings
from tests import rollout_model
from tests.models import adapter_math
from tests.typed import present

RULES = ShardingSettings().rules()
CONFIG = dataclasses.replace(
  rollout_model.CONFIG,
  family="qwen3_moe",
  qk_norm=True,
  experts=ExpertShape(4, 2, 24),
)
MODEL = transformer.Transformer(CONFIG)
CLAMP = ClampedSwiglu(1.702, 0.5)
GPT_OSS = transformer.Transformer(
  dataclasses.replace(
    rollout_model.CONFIG,
    family="gpt_oss",
    tie_embeddings=False,
    **dict(qkv_bias=True, o_bias=True, sinks=True, windows=(8, 0)),
    experts=ExpertShape(4, 2, 32, biases=True, clamp=CLAMP),
  )
)
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


@pytest.mark.parametrize(
  "platform, clamp", [("cpu", CLAMP), ("gpu", None), ("tpu", None)]
)
def test_experts_are_the_sum_over_all_by_formula(platform, clamp, monkeypatch):
  """Expert 0 gets every token, 3 gets none, and 5 is no expert."""
  multiply = grouped_products.GroupedProduct.__call__

  def leave_others(product, rows, kernel, sizes):
    y = multiply(product, rows, kernel, sizes)
    filled = jnp.arange(len(y))[:, None] < jnp.sum(sizes)
    return jnp.where(filled, y, jnp.nan)

  monkeypatch.setattr(grouped_products.GroupedProduct, "__call__", leave_others)
  rng = np.random.default_rng(0)
  T, X, D, F = 40, 5, 32, 48
  x = rng.normal(size=(2, T // 2, D)).astype(np.float32)
  kernels = [
    (rng.normal(size=shape) / 5).astype(np.float32)
    for shape in ((X, D, F), (X, D, F), (X, F, D))
  ]
  biases = [rng.normal(size=(X, n)).astype(np.float32) for n in (F, F, D)]
  weights = rng.uniform(size=(2, T // 2, 2)).astype(np.float32)
  others = rng.choice([1, 2, 4, 5], T)
  chosen = np.stack([np.zeros(T), others], -1).reshape(2, T // 2, 2)
  chosen = jnp.asarray(chosen, jnp.int32)

  def by_formula(x, weights, kernels, biases):
    gate, up, last = (b[None, None] for b in biases)
    gate += jnp.einsum("bsd,xdf->bsxf", x, kernels[0])
    up += jnp.einsum("bsd,xdf->bsxf", x, kernels[1])
    if clamp is None:
      hidden = jax.nn.silu(gate) * up
    else:
      gate = jnp.minimum(gate, 0.5)
      hidden = (
        (jnp.clip(up, -0.5, 0.5) + 1) * gate / (1 + jnp.exp(-1.702 * gate))
      )
    y = jnp.einsum("bsxf,xfd->bsxd", hidden, kernels[2]) + last
    is_chosen = jax.nn.one_hot(chosen, X)
    return jnp.einsum("bsxd,bskx,bsk->bsd", y, is_chosen, weights)

  def by_groups(x, weights, kernels, biases):
    each = expert_mlps.Projections(
      *(
        expert_mlps.ExpertParams(kernel, bias=bias)
        for kernel, bias in zip(kernels, biases, strict=True)
      )
    )
    return expert_mlps.compute(
      *(x, weights, chosen, each, 1.0, clamp), platform=platform, interpret=True
    )

  want, got = (
    jax.jit(
      jax.value_and_grad(
        lambda *arrays, run=run: jnp.sum(jnp.sin(run(*arrays))),
        argnums=(0, 1, 2, 3),
      )
    )(*jax.tree.map(jnp.asarray, (x, weights, kernels, biases)))
    for run in (by_formula, by_groups)
  )
  assert_near(got, want)
  assert not any(np.any(grad[3]) for grad in (*got[1][2], *got[1][3]))


@pytest.mark.slow
@pytest.mark.parametrize("plain", [MODEL, GPT_OSS])
@pytest.mark.parametrize(
  ("sizes", "tokens"),
  [
    ({"fsdp": 2, "expert": 2, "tensor": 2}, 4096),
    ({"fsdp": 2, "expert": 2, "tensor": 2}, 1),
    ({"expert": 4}, 1),
    ({"fsdp": 2, "context": 2}, 4096),
  ],
)
def test_a_mesh_changes_no_gradient(plain, sizes, tokens):
  params = drawn(plain)
  devices = jax.devices()[: int(np.prod([*sizes.values()]))]
  mesh = mesh_lib.make_mesh(sizes, devices)
  boxed = transformer.abstract_params(plain)
  model = plain.clone(
    multiply=products.make(mesh, RULES),
    compute_experts=expert_sharding.make(mesh, RULES, tokens=tokens),
  )
  shardings = mesh_lib.param_shardings(boxed, mesh, RULES)
  got = value_and_gradients(model, jax.device_put(params, shardings))
  assert_near(got, value_and_gradients(plain, params), atol=2e-5)


@pytest.mark.parametrize(
  "plain", [MODEL, pytest.param(GPT_OSS, marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_adapters_of_experts_are_small_and_merge(
  plain, tmp_path, one_device_mesh
):
  lora, config = Lora(5, 8.0), plain.config
  model = plain.clone(lora=lora)
  base = drawn(plain)
  trained = drawn(model, seed=1)
  trained = adapters.adapters_of(trained)
  own = trained["layers"]["experts"]["down_lora"]
  width = present(config.experts).size
  assert own["a"].shape == (2, 4, width, 2) and own["b"].shape == (2, 4, 2, 32)
  count = adapters.parameter_count(config, lora)
  assert count == sum(x.size for x in jax.tree.leaves(trained))
  whole = adapters.join(base, trained)
  safetensors_io.save(whole, config, tmp_path, dtype="float32", lora=lora)
  merged = weight_loading.load_params(
    *(config, safetensors_io.SafetensorsReader(tmp_path)),
    *(one_device_mesh, RULES),
  )
  want, _ = value_and_gradients(plain, merged)
  np.testing.assert_allclose(
    value_and_gradients(model, whole)[0], want, rtol=1e-4
  )
  stacked = model.clone(lora=dataclasses.replace(lora, stacked=2))
  with pytest.raises(ValueError, match=r"lora.targets=.*expected some of q"):
    transformer.abstract_params(stacked)


@pytest.mark.parametrize(
  "name, rank", [("qwen3-30b-a3b", 4), ("gpt-oss-20b", 8), ("moe-tiny", 16)]
)
def test_the_experts_of_a_token_share_the_rank(name, rank):
  experts = present(presets.PRESETS[name].experts)
  assert Lora(32, 32.0).rank_in(experts) == rank
  assert Lora(1, 32.0).rank_in(experts) == 1


def test_kernels_are_quantized_layer_by_layer_on_loading(tmp_path):
  """Loading yields the bits and shardings that quantizing all at once does."""
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
  # As its model card counts, without the table of input tokens.
  large = presets.PRESETS["gpt-oss-120b"]
  assert round(presets.parameter_count(large) / 1e9, 2) == 116.83
  assert round(operations.multiplied_weights(large) / 1e9, 2) == 5.13


# Fields of the families' tiny models besides their shape.
FAMILIES = {
  "qwen3_moe": dict(
    num_experts=6, moe_intermediate_size=24, norm_topk_prob=True
  ),
  "gpt_oss": dict(
    **dict(num_local_experts=6, intermediate_size=24, swiglu_limit=0.5),
    sliding_window=8,
  ),
}


@pytest.mark.slow
@pytest.mark.parametrize("is_spread", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_transformers(
  family, is_spread, tmp_path, one_device_mesh
):
  """The same token at each position overloads some experts."""
  import torch
  import transformers

  config = transformers.AutoConfig.for_model(
    family,
    **dict(vocab_size=48, hidden_size=32, num_hidden_layers=2, head_dim=16),
    **dict(num_attention_heads=4, num_key_value_heads=2, num_experts_per_tok=2),
    **FAMILIES[family],
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

  def load(folder):
    reader = safetensors_io.SafetensorsReader(folder)
    return weight_loading.load_params(ours, reader, one_device_mesh, RULES)

  def loss(params):
    hidden, _ = transformer.Transformer(ours).apply(
      {"params": params}, tokens, np.arange(20)[None] + 0 * tokens
    )
    logits = hidden @ transformer.unembedding(params, ours)
    return jnp.mean(jnp.sin(logits))

  grads = jax.jit(jax.grad(loss))(load(tmp_path))
  largest = max(np.max(np.abs(x)) for x in jax.tree.leaves(grads))
  # Saving splits the gradients like the parameters.
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.copy_(parameter.grad)
  model.save_pretrained(tmp_path / "grads")
  want = load(tmp_path / "grads")
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5 * largest),
    grads,
    want,
  )
  kernels = (want["layers"]["experts"][n]["kernel"] for n in ("gate", "down"))
  used = [np.any(kernel, axis=(2, 3)).sum() for kernel in kernels]
  assert is_spread or max(used) <= 2 * 2
