"""Small GGUF files for tests."""

import dataclasses
import json
import re
from typing import Any

import gguf
import numpy as np
import tokenizers
from gguf import quants
from typed import present

from azr_jax.models import weight_names
from azr_jax.models.config import (
  GELU_TANH,
  ExpertShape,
  LongRopeScaling,
  ModelConfig,
)

REPLICATED = dict.fromkeys(
  ("vocab", "embed", "heads", "kv_heads", "head_size", "mlp", "layers")
)
END = "<|im_end|>"
TEXT = "Hello there, it's   12345\n  x = a_b(é)\n\n" + END


WINDOW = 8


# Architecture -> what differs from a small Qwen2 without biases.
DIFFERENCES: dict[str, dict[str, Any]] = {
  "llama": dict(tie_embeddings=False),
  "qwen2": dict(qkv_bias=True),
  # transformers assumes these sizes of heads and experts in every file.
  "qwen3": dict(qk_norm=True, head_size=128),
  "qwen3moe": dict(
    family="qwen3_moe",
    qk_norm=True,
    head_size=128,
    experts=ExpertShape(count=4, per_token=2, size=768),
  ),
  "smollm3": dict(num_layers=4, rotated=(True, True, True, False)),
  "granite": dict(
    embedding_scale=2.0,
    attention_scale=0.5,
    residual_scale=0.8,
    logits_scale=0.25,
  ),
  "olmo2": dict(
    tie_embeddings=False,
    joint_qk_norm=True,
    norm_before=False,
    norm_after=True,
  ),
  "phi3": dict(
    rotary_size=24,
    max_positions=4096,
    rope_scaling=LongRopeScaling(
      short_factors=tuple(1 + i / 8 for i in range(12)),
      long_factors=tuple(2 + i / 4 for i in range(12)),
      original_max_position=2048,
      attention_factor=1.19,
    ),
  ),
}
ARCHITECTURES = (*DIFFERENCES, "gemma3")


def config_of(architecture, vocab_size):
  if architecture == "gemma3":
    return gemma3(vocab_size)
  config = ModelConfig(
    vocab_size=vocab_size,
    hidden_size=64,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_size=32,
    mlp_size=96,
    rope_theta=50000.0,
    norm_eps=1e-5,
    tie_embeddings=True,
    max_positions=128,
    family=architecture,
  )
  return dataclasses.replace(config, **DIFFERENCES[architecture])


def gemma3(vocab_size):
  """Returns a small Gemma 3, with a full layer after five windows."""
  return ModelConfig(
    vocab_size=vocab_size,
    hidden_size=64,
    num_layers=6,
    num_heads=2,
    num_kv_heads=1,
    # transformers divides scores by the root of 256 in every file.
    head_size=256,
    mlp_size=96,
    rope_theta=50000.0,
    norm_eps=1e-5,
    tie_embeddings=True,
    max_positions=128,
    family="gemma3_text",
    qk_norm=True,
    norm_after=True,
    norm_offset=True,
    activation=GELU_TANH,
    embedding_scale=8.0,
    attention_scale=1 / 16,
    windows=(*5 * [WINDOW], 0),
    local_rope_theta=10000.0,
  )


def make_vocabulary():
  """Returns a small byte-level BPE vocabulary: tokens, merges, types."""
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
  """Writes a random model; `kind` is the type of its matrices."""
  tokens, merges, kinds = vocabulary
  config = config_of(architecture, len(tokens))
  writer = gguf.GGUFWriter(path, architecture)
  # transformers tells mistral from llama files by the name.
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
  if config.windows:
    writer.add_sliding_window(WINDOW)
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
    for index in entry.indices(config.num_layers):
      name = gguf_name(entry.tensor(index), architecture)
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


def gguf_name(name, architecture="qwen3"):
  """Returns a tensor's name by llama.cpp's map instead of ours."""
  # Qwen3's map has the tensors of Llama and Qwen2 too.
  known = "qwen3" if architecture in ("llama", "qwen2") else architecture
  (kind,) = (k for k, n in gguf.MODEL_ARCH_NAMES.items() if n == known)
  names = gguf.get_tensor_name_map(kind, 6)
  # Experts share a tensor.
  name = re.sub(r"experts\.\d+", "experts", name)
  return present(names.get_name(name, try_suffixes=(".weight", ".bias")))
