"""GGUF files give what transformers reads from the same file."""

import json

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from gguf import quants

from azr_jax.models import (
  gguf_io,
  gguf_tokenizer,
  transformer,
  weight_loading,
  weight_names,
)
from azr_jax.models.config import ModelConfig

REPLICATED = dict.fromkeys(
  ("vocab", "embed", "heads", "kv_heads", "head_size", "mlp", "layers")
)
END = "<|im_end|>"
TEXT = "Hello there, it's   12345\n  x = a_b(é)\n\n" + END


def config_of(architecture, vocab_size):
  return ModelConfig(
    vocab_size=vocab_size,
    hidden_size=64,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    # transformers takes head size 128 for every qwen3 file.
    head_size=128 if architecture == "qwen3" else 32,
    mlp_size=96,
    rope_theta=50000.0,
    norm_eps=1e-5,
    tie_embeddings=architecture != "llama",
    max_positions=128,
    qkv_bias=architecture == "qwen2",
    qk_norm=architecture == "qwen3",
  )


@pytest.fixture(scope="session")
def vocabulary():
  """A small byte-level BPE vocabulary: tokens, merges, kinds."""
  trained = tokenizers.ByteLevelBPETokenizer()
  trained.train_from_iterator(
    [TEXT] * 3, vocab_size=300, min_frequency=2, show_progress=False
  )
  backend = trained._tokenizer
  ids = trained.get_vocab()
  tokens = sorted(ids, key=ids.get)
  merges = _merges(backend)
  kinds = [1] * len(tokens) + [3]
  return [*tokens, END], merges, kinds


def _merges(backend):
  merges = json.loads(backend.to_str())["model"]["merges"]
  return [m if isinstance(m, str) else " ".join(m) for m in merges]


def write_gguf(path, architecture, kind, vocabulary, extra=()):
  """Writes a random model; `kind` is the type of the two-axis tensors."""
  tokens, merges, kinds = vocabulary
  config = config_of(architecture, len(tokens))
  writer = gguf.GGUFWriter(path, architecture)
  # transformers reads the name to tell mistral files from llama's.
  writer.add_name("tiny")
  writer.add_block_count(config.num_layers)
  writer.add_context_length(config.max_positions)
  writer.add_embedding_length(config.hidden_size)
  writer.add_feed_forward_length(config.mlp_size)
  writer.add_head_count(config.num_heads)
  writer.add_head_count_kv(config.num_kv_heads)
  writer.add_key_length(config.head_size)
  writer.add_value_length(config.head_size)
  writer.add_rope_freq_base(config.rope_theta)
  writer.add_layer_norm_rms_eps(config.norm_eps)
  for add in extra:
    add(writer)
  writer.add_tokenizer_model("gpt2")
  pre = "qwen2" if architecture != "llama" else "llama-bpe"
  writer.add_tokenizer_pre(pre)
  writer.add_token_list(tokens)
  writer.add_token_merges(merges)
  writer.add_token_types(kinds)
  writer.add_eos_token_id(len(tokens) - 1)
  rng = np.random.default_rng(0)
  for entry in weight_names.entries(config):
    for layer in range(config.num_layers if entry.stacked else 1):
      name = gguf_name(entry.name.format(layer=layer))
      values = rng.normal(size=entry.checkpoint_shape) * 0.2
      values = values.astype(np.float32)
      if values.ndim == 1:
        writer.add_tensor(name, values + 1)
      else:
        packed = quants.quantize(values, kind)
        writer.add_tensor(name, packed, raw_dtype=kind)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return config


def gguf_name(name):
  """Returns a tensor's name by llama.cpp's map, not by ours."""
  names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, 2)
  return names.get_name(name, try_suffixes=(".weight", ".bias"))


@pytest.mark.parametrize(
  "architecture, kind",
  [
    ("llama", gguf.GGMLQuantizationType.F32),
    ("llama", gguf.GGMLQuantizationType.Q4_1),
    ("qwen2", gguf.GGMLQuantizationType.Q8_0),
    ("qwen3", gguf.GGMLQuantizationType.F16),
  ],
)
def test_logits_match_transformers(
  tmp_path, vocabulary, one_device_mesh, architecture, kind
):
  path = tmp_path / "tiny.gguf"
  config = write_gguf(path, architecture, kind, vocabulary)
  model = gguf_io.GGUFModel(path)
  assert model.config == config
  params = weight_loading.load_params(
    config, model, one_device_mesh, REPLICATED
  )
  theirs = transformers.AutoModelForCausalLM.from_pretrained(
    tmp_path, gguf_file=path.name, dtype=torch.float32
  ).eval()
  rng = np.random.default_rng(1)
  tokens = rng.integers(0, config.vocab_size, (2, 100))
  with torch.no_grad():
    want = theirs(torch.tensor(tokens)).logits.numpy()
  positions = jnp.broadcast_to(jnp.arange(100), tokens.shape)
  hidden, _ = jax.jit(transformer.Transformer(config).apply)(
    {"params": params}, tokens, positions
  )
  got = hidden @ transformer.unembedding(params, config)
  np.testing.assert_allclose(got, want, atol=1e-4)


def test_rows_are_dequantised_alone(tmp_path, vocabulary):
  path = tmp_path / "tiny.gguf"
  write_gguf(path, "llama", gguf.GGMLQuantizationType.Q4_1, vocabulary)
  model = gguf_io.GGUFModel(path)
  for part in ("self_attn.q_proj", "mlp.up_proj"):
    name = f"model.layers.1.{part}.weight"
    every = tuple(slice(0, size) for size in model.shape(name))
    whole = model.read(name, every)
    part = model.read(name, (slice(32, 64), slice(8, 24)))
    np.testing.assert_array_equal(part, whole[32:64, 8:24])


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_tokenizer_matches_transformers(tmp_path, vocabulary, architecture):
  path = tmp_path / "tiny.gguf"
  kind = gguf.GGMLQuantizationType.F16
  write_gguf(path, architecture, kind, vocabulary)
  ours = gguf_tokenizer.from_metadata(gguf_io.GGUFModel(path).metadata)
  theirs = transformers.AutoTokenizer.from_pretrained(
    tmp_path, gguf_file=path.name
  )
  ids = ours.encode(TEXT)
  assert ids == theirs.encode(TEXT, add_special_tokens=False)
  assert ids[-1:] == list(ours.eos_ids) == [ours.token_id(END)]
  assert ours.decode(ids) == TEXT.removesuffix(END)


@pytest.mark.parametrize(
  "add, word",
  [
    (lambda w: w.add_sliding_window(64), "attention.sliding_window=64"),
    (lambda w: w.add_expert_count(8), "expert_count=8"),
    (lambda w: w.add_rope_dimension_count(16), "rope.dimension_count=16"),
    (
      lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.YARN),
      "rope.scaling.type='yarn'",
    ),
  ],
)
def test_refusal_names_key_and_value(tmp_path, vocabulary, add, word):
  path = tmp_path / "tiny.gguf"
  kind = gguf.GGMLQuantizationType.F16
  write_gguf(path, "llama", kind, vocabulary, [add])
  with pytest.raises(ValueError, match=f"{word}.*expected"):
    gguf_io.GGUFModel(path)


@pytest.mark.parametrize(
  "key, value",
  [("tokenizer.ggml.model", "llama"), ("tokenizer.ggml.pre", "tekken")],
)
def test_unknown_tokenizer_is_refused(key, value):
  metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}
  with pytest.raises(ValueError, match=f"{key}='{value}': expected"):
    gguf_tokenizer.from_metadata(metadata | {key: value})
