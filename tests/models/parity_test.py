"""Our decoder agrees with torch's on random weights, whole and in parts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transformers

from azr_jax.models import (
  huggingface_config,
  rope,
  safetensors_io,
  transformer,
  weight_loading,
)
from azr_jax.parallel import mesh as mesh_lib

TOKENS = 300
SHAPE = dict(
  vocab_size=256,
  hidden_size=64,
  intermediate_size=96,
  num_hidden_layers=2,
  num_attention_heads=4,
  num_key_value_heads=2,
  max_position_embeddings=512,
)
LLAMA3_ROPE = {
  "rope_type": "llama3",
  "rope_theta": 10000.0,
  "factor": 8.0,
  "low_freq_factor": 1.0,
  "high_freq_factor": 4.0,
  "original_max_position_embeddings": 64,
}
FAMILIES = {
  "llama3": lambda: transformers.LlamaConfig(
    **SHAPE, rope_parameters=LLAMA3_ROPE, tie_word_embeddings=False
  ),
  "qwen2": lambda: transformers.Qwen2Config(**SHAPE, tie_word_embeddings=True),
  "qwen3": lambda: transformers.Qwen3Config(
    **SHAPE, head_dim=32, tie_word_embeddings=False
  ),
}
RULES = {
  "vocab": "tensor",
  "embed": "fsdp",
  "heads": "tensor",
  "kv_heads": "tensor",
  "head_size": None,
  "mlp": "tensor",
  "experts": None,
  "layers": None,
}


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def torch_folder(request, tmp_path_factory):
  """Saves a small random torch model, with random biases and norms too."""

  import torch

  torch.manual_seed(0)
  model = transformers.AutoModelForCausalLM.from_config(
    FAMILIES[request.param]()
  ).eval()
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      if name.endswith("bias") or "norm" in name:
        parameter.add_(0.3 * torch.randn_like(parameter))
  folder = tmp_path_factory.mktemp(request.param)
  model.save_pretrained(folder)
  return folder, model


def our_logits(config, params, tokens, **options):
  model = transformer.Transformer(config, **options)
  positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
  hidden, _ = jax.jit(model.apply)({"params": params}, tokens, positions)
  return np.asarray(hidden @ transformer.unembedding(params, config))


def torch_logits(model, tokens):
  import torch

  with torch.no_grad():
    return model(torch.tensor(tokens)).logits.numpy()


def random_tokens(vocab_size, rows=2):
  rng = np.random.default_rng(0)
  return rng.integers(0, vocab_size, (rows, TOKENS))


def load_folder(folder, mesh):
  config = safetensors_io.read_config(folder)
  return config, weight_loading.load_params(
    config, safetensors_io.SafetensorsReader(folder), mesh, RULES
  )


def test_rms_norm_matches_torch():
  import torch

  rng = np.random.default_rng(0)
  x = rng.normal(size=(2, 5, 64)).astype(np.float32)
  scale = rng.normal(size=64).astype(np.float32)
  theirs = transformers.models.llama.modeling_llama.LlamaRMSNorm(64, 1e-5)
  with torch.no_grad():
    theirs.weight.copy_(torch.tensor(scale))
    want = theirs(torch.tensor(x)).numpy()
  ours = transformer.RMSNorm(1e-5, "embed")
  got = ours.apply({"params": {"scale": scale}}, x)
  np.testing.assert_allclose(np.asarray(got), want, atol=1e-5)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_rotary_embedding_matches_torch(family):
  import torch

  modeling = transformers.models.llama.modeling_llama
  theirs: Any = FAMILIES[family]()
  config = huggingface_config.from_huggingface(theirs.to_diff_dict())
  rng = np.random.default_rng(0)
  x = rng.normal(size=(1, TOKENS, 4, config.head_size)).astype(np.float32)
  positions = np.arange(TOKENS)[None]
  cos, sin = modeling.LlamaRotaryEmbedding(theirs)(
    torch.tensor(x), torch.tensor(positions)
  )
  want, _ = modeling.apply_rotary_pos_emb(
    torch.tensor(x), torch.tensor(x), cos, sin, unsqueeze_dim=2
  )
  got = rope.rotate(
    jnp.asarray(x), jnp.asarray(positions), rope.inverse_frequencies(config)
  )
  np.testing.assert_allclose(got, want.numpy(), atol=1e-5)


def test_logits_match_torch(torch_folder, one_device_mesh):
  folder, model = torch_folder
  config, params = load_folder(folder, one_device_mesh)
  tokens = random_tokens(config.vocab_size)
  np.testing.assert_allclose(
    our_logits(config, params, tokens), torch_logits(model, tokens), atol=1e-4
  )


def test_saved_weights_give_torch_the_same_logits(
  torch_folder, one_device_mesh, tmp_path
):
  folder, model = torch_folder
  config, params = load_folder(folder, one_device_mesh)
  safetensors_io.save(
    params, config, tmp_path, dtype="float32", max_file_bytes=100_000
  )
  assert (tmp_path / safetensors_io.INDEX).exists()
  again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
  tokens = random_tokens(config.vocab_size)
  np.testing.assert_array_equal(
    torch_logits(again, tokens), torch_logits(model, tokens)
  )
  _, reloaded = load_folder(tmp_path, one_device_mesh)
  jax.tree.map(np.testing.assert_array_equal, params, reloaded)


def test_sharded_load_gives_the_same_logits(torch_folder, one_device_mesh):
  folder, _ = torch_folder
  config, params = load_folder(folder, one_device_mesh)
  mesh = mesh_lib.make_mesh({"data": 1, "fsdp": 4, "tensor": 2})
  _, sharded = load_folder(folder, mesh)
  assert len(sharded["embedding"].sharding.device_set) == 8
  tokens = random_tokens(config.vocab_size)
  np.testing.assert_allclose(
    our_logits(config, params, tokens),
    our_logits(config, sharded, tokens),
    atol=1e-5,
  )
