"""Adapters agree with PEFT's: values, gradients, optimizer steps, files."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import transformers

from azr_jax.models import (
  adapters,
  load,
  peft_io,
  sampling_params,
  transformer,
  weight_loading,
  weight_names,
)
from azr_jax.models.adapters import Lora
from tests.models import adapter_math
from tests.models.parity_test import FAMILIES, RULES, load_folder
from tests.rollout_model import CONFIG
from tests.typed import present

# PEFT reads a property that transformers calls by another name now.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")

RANK, ALPHA, STEPS = 4, 10, 10
LEARNING_RATE, DECAY = 1e-3, 0.01
TOKENS = np.random.default_rng(0).integers(0, 256, (2, 24))
# The loss weighs every target differently.
WEIGHTS = np.linspace(0.5, 1.5, 23, dtype=np.float32)


@functools.cache
def imported():
  """Imports torch and peft, which are slow, when a test runs."""
  import peft
  import torch

  return torch, peft


def torch_loss(model):
  torch, _ = imported()
  logits = model(torch.tensor(TOKENS)).logits
  logps = torch.log_softmax(logits[:, :-1], -1)
  chosen = logps.gather(-1, torch.tensor(TOKENS)[:, 1:, None])[..., 0]
  return -(chosen * torch.tensor(WEIGHTS)).sum(), logits


def torch_adapters(model, of):
  """Returns `of(parameter)` of each adapter, by the name in PEFT's files."""
  return {
    name.replace(".default", ""): of(parameter).detach().numpy().copy()
    for name, parameter in model.named_parameters()
    if "lora_" in name
  }


@pytest.fixture(
  scope="module",
  params=[
    pytest.param(("llama3", False), marks=pytest.mark.slow),
    ("qwen2", False),
    pytest.param(("qwen3", False), marks=pytest.mark.slow),
    pytest.param(("qwen2", True), marks=pytest.mark.slow),
  ],
  ids=lambda param: f"{param[0]}{'-rslora' * param[1]}",
)
def reference(request, tmp_path_factory):
  """A PEFT model before and after optimizer steps, and its files."""
  torch, peft = imported()
  family, stabilized = request.param
  torch.manual_seed(0)
  base = transformers.AutoModelForCausalLM.from_config(FAMILIES[family]())
  folder = tmp_path_factory.mktemp("peft")
  base.save_pretrained(folder / "base")
  model = peft.get_peft_model(
    base,
    peft.LoraConfig(
      r=RANK,
      lora_alpha=ALPHA,
      use_rslora=stabilized,
      target_modules="all-linear",
      task_type="CAUSAL_LM",
    ),
  )
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      if "lora_B" in name:
        parameter.add_(0.1 * torch.randn_like(parameter))
  model.peft_config["default"].base_model_name_or_path = str(folder / "base")
  model.save_pretrained(folder / "adapter")
  found = {"folder": folder}
  optimizer = torch.optim.AdamW(
    (p for p in model.parameters() if p.requires_grad),
    lr=LEARNING_RATE,
    weight_decay=DECAY,
  )
  for step in range(STEPS):
    loss, logits = torch_loss(model)
    optimizer.zero_grad()
    loss.backward()
    if step == 0:
      found["logits"] = logits.detach().numpy()
      found["gradients"] = torch_adapters(model, lambda p: p.grad)
    optimizer.step()
  found["trained"] = torch_adapters(model, lambda p: p)
  with torch.no_grad():
    found["trained logits"] = torch_loss(model)[1].numpy()
    found["base logits"] = torch_loss(model.unload())[1].numpy()
  return found


def ours(folder, mesh):
  """Returns the decoder of a folder, its base and its adapters."""
  config, base = load_folder(folder / "base", mesh)
  lora, name = peft_io.read_config(folder / "adapter")
  assert name == str(folder / "base")
  trained = peft_io.load(folder / "adapter", config, lora, mesh, RULES)
  return transformer.Transformer(config, lora=lora), base, trained


@functools.partial(jax.jit, static_argnums=0)
def logits_of(model, params):
  positions = jnp.broadcast_to(jnp.arange(TOKENS.shape[1]), TOKENS.shape)
  hidden, _ = model.apply({"params": params}, TOKENS, positions)
  return hidden @ transformer.unembedding(params, model.config)


def loss_of(model, base, trained):
  logits = logits_of(model, adapters.join(base, trained))
  logps = jax.nn.log_softmax(logits[:, :-1])
  chosen = jnp.take_along_axis(logps, TOKENS[:, 1:, None], -1)[..., 0]
  return -jnp.sum(chosen * WEIGHTS[None])


@functools.partial(jax.jit, static_argnums=0)
def gradient_of(model, base, trained):
  """Returns the gradient of `loss_of` with respect to the adapters."""
  return jax.grad(functools.partial(loss_of, model, base))(trained)


def in_files(model, trained):
  """Returns adapters as PEFT's files name and shape them."""
  return {
    entry.tensor(index): weight_loading.fetch(trained, entry, index)
    for entry in weight_names.adapter_entries(model.config, model.lora)
    for index in entry.indices(model.config.num_layers)
  }


def test_values_gradients_and_steps_are_peft_s(reference, one_device_mesh):
  model, base, trained = ours(reference["folder"], one_device_mesh)
  np.testing.assert_allclose(
    logits_of(model, adapters.join(base, trained)),
    reference["logits"],
    atol=1e-5,
  )
  found = in_files(model, gradient_of(model, base, trained))
  assert found.keys() == reference["gradients"].keys()
  for name, want in reference["gradients"].items():
    np.testing.assert_allclose(
      found[name], want, atol=1e-5 * np.abs(want).max(), err_msg=name
    )
  optimizer = optax.adamw(LEARNING_RATE, weight_decay=DECAY)

  @jax.jit
  def step(state, trained):
    grads = gradient_of(model, base, trained)
    updates, state = optimizer.update(grads, state, trained)
    return state, optax.apply_updates(trained, updates)

  state = optimizer.init(trained)
  for _ in range(STEPS):
    state, trained = step(state, trained)
  for name, tensor in in_files(model, trained).items():
    np.testing.assert_allclose(
      tensor, reference["trained"][name], atol=1e-5, err_msg=name
    )
  np.testing.assert_allclose(
    logits_of(model, adapters.join(base, trained)),
    reference["trained logits"],
    atol=1e-4,
  )
  plain = model.clone(lora=None)
  np.testing.assert_allclose(
    logits_of(plain, base), reference["base logits"], atol=1e-5
  )
  merged = adapter_math.merge(base, trained, present(model.lora))
  np.testing.assert_allclose(
    logits_of(plain, merged), reference["trained logits"], atol=1e-4
  )


def test_files_return_to_peft(reference, one_device_mesh, tmp_path):
  torch, peft = imported()
  folder = reference["folder"]
  model, base, trained = ours(folder, one_device_mesh)
  trained = jax.tree.map(lambda x: x * 1.5, trained)
  peft_io.save(
    trained, model.config, present(model.lora), str(folder / "base"), tmp_path
  )
  loaded = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path)
  with torch.no_grad():
    want = torch_loss(loaded)[1].numpy()
  np.testing.assert_allclose(
    logits_of(model, adapters.join(base, trained)), want, atol=1e-5
  )
  assert peft_io.read_config(tmp_path)[0] == model.lora


def test_an_adapter_folder_is_a_model(reference, one_device_mesh, monkeypatch):
  folder = reference["folder"]
  monkeypatch.setattr(load.tokenizers, "from_folder", lambda _: FakeTokenizer())
  source = load.resolve(str(folder / "adapter"), "unused")
  assert source.lora == ours(folder, one_device_mesh)[0].lora
  assert source.spec == str(folder / "base")
  got = present(source.load_adapters)(one_device_mesh, RULES)
  want = ours(folder, one_device_mesh)[2]
  jax.tree.map(np.testing.assert_array_equal, got, want)


class FakeTokenizer:
  vocab_size = 256


@pytest.mark.parametrize("layout", ["fused", "unrolled", "both", "int8"])
def test_layouts_compute_the_same(reference, one_device_mesh, layout):
  """Checks values and gradients in the layouts that a sampler shares."""
  model, base, trained = ours(reference["folder"], one_device_mesh)
  want = logits_of(model, adapters.join(base, trained))
  want_grad = gradient_of(model, base, trained)
  fused, unrolled = layout in ("fused", "both"), layout in ("unrolled", "both")
  other = model.clone(fused=fused, unrolled=unrolled)
  if layout == "int8":
    other = model.clone(kernel_dtype=jnp.dtype("int8"))
    base = sampling_params.quantize(base, jnp.int8)
    rounded = adapter_math.dequantized(base)
    want = logits_of(model, adapters.join(rounded, trained))
    want_grad = gradient_of(model, rounded, trained)
  base = sampling_params.arrange(other, base)

  def whole(trained):
    params = adapters.join(base, trained)
    if not unrolled:
      return params
    return sampling_params.unstack_rest(params, model.config.num_layers)

  np.testing.assert_allclose(logits_of(other, whole(trained)), want, atol=1e-5)
  jax.tree.map(
    lambda got, want: np.testing.assert_allclose(
      got, want, atol=1e-5 * np.abs(want).max()
    ),
    jax.jit(jax.grad(lambda trained: loss_of(other, whole(trained), {})))(
      trained
    ),
    want_grad,
  )


@pytest.mark.parametrize(
  "field, value",
  [
    ("use_dora", True),
    ("modules_to_save", ["lm_head"]),
    ("rank_pattern", {"q_proj": 2}),
    ("alpha_pattern", {"q_proj": 2}),
    ("bias", "all"),
    ("peft_type", "IA3"),
    ("layers_to_transform", [0]),
    ("target_modules", ["q_proj", "lm_head"]),
    ("an_option_of_tomorrow", True),
  ],
)
def test_other_options_are_refused_by_name(tmp_path, field, value):
  config = peft_io._config(Lora(2, 4.0), "base", CONFIG)
  path = tmp_path / peft_io.CONFIG
  path.write_text(json.dumps(config | {field: value}))
  with pytest.raises(ValueError, match=rf"adapter_config.json has {field}="):
    peft_io.read_config(tmp_path)


def test_dropout_changes_no_trained_adapter(tmp_path):
  config = peft_io._config(Lora(2, 4.0), "base", CONFIG)
  path = tmp_path / peft_io.CONFIG
  path.write_text(json.dumps(config | {"lora_dropout": 0.05}))
  assert peft_io.read_config(tmp_path) == (Lora(2, 4.0), "base")


@pytest.mark.parametrize(
  "modules, targets",
  [
    ("all-linear", adapters.TARGETS),
    (["v_proj", "q_proj"], ("q", "v")),
    (["self_attn.o_proj"], ("o",)),
    (r".*\.mlp\.(up|down)_proj", ("up", "down")),
  ],
)
def test_target_modules(tmp_path, modules, targets):
  config = peft_io._config(Lora(2, 4.0), "base", CONFIG)
  path = tmp_path / peft_io.CONFIG
  path.write_text(json.dumps(config | {"target_modules": modules}))
  assert peft_io.read_config(tmp_path)[0].targets == targets
