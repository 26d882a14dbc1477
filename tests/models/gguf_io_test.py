"""GGUF files load to the weights that transformers reads from the same file."""

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transformers
from gguf_files import END, REPLICATED, TEXT, WINDOW, write_gguf
from typed import present

from azr_jax.models import (
  gguf_config,
  gguf_io,
  gguf_tokenizer,
  load,
  transformer,
  weight_loading,
)


@pytest.mark.parametrize(
  "architecture, kind",
  [
    ("llama", gguf.GGMLQuantizationType.F32),
    ("llama", gguf.GGMLQuantizationType.Q4_1),
    ("qwen2", gguf.GGMLQuantizationType.Q8_0),
    ("qwen3", gguf.GGMLQuantizationType.F16),
    ("gemma3", gguf.GGMLQuantizationType.F16),
  ],
)
def test_logits_match_transformers(
  tmp_path, vocabulary, one_device_mesh, architecture, kind
):
  import torch

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


def test_rows_are_dequantized_alone(tmp_path, vocabulary):
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
  theirs = present(
    transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
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
  "add, expected",
  [
    (lambda w: w.add_final_logit_softcapping(30.0), "final_logit_softcapping"),
    (lambda w: w.add_sliding_window_pattern([True] * 6), "one value for all"),
    (
      lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR),
      "rope.scaling.type='linear': expected none",
    ),
  ],
)
def test_other_gemmas_are_refused(tmp_path, vocabulary, add, expected):
  path = tmp_path / "tiny.gguf"
  kind = gguf.GGMLQuantizationType.F16
  write_gguf(path, "gemma3", kind, vocabulary, [add])
  with pytest.raises(ValueError, match=f"{expected}.*expected|{expected}"):
    gguf_io.GGUFModel(path)


def test_newer_gemmas_say_more(tmp_path, vocabulary):
  path = tmp_path / "tiny.gguf"
  write_gguf(
    *(path, "gemma3", gguf.GGMLQuantizationType.F16, vocabulary),
    [
      lambda w: w.add_sliding_window_pattern(3),
      lambda w: w.add_rope_freq_base_swa(300.0),
    ],
  )
  config = gguf_io.GGUFModel(path).config
  assert config.windows == (WINDOW, WINDOW, 0) * 2
  assert config.local_rope_theta == 300.0


@pytest.mark.parametrize(
  "layers, heads, size, scale",
  [(62, 32, 168, 168**-0.5), (34, 8, 256, 1 / 16)],
)
def test_scores_of_27b_have_a_divisor_of_their_own(layers, heads, size, scale):
  """The published 27B and 4B: 5376 / 32 heads, and heads of 256."""
  metadata = {
    "general.architecture": "gemma3",
    "gemma3.block_count": layers,
    "gemma3.context_length": 131072,
    "gemma3.embedding_length": size * heads,
    "gemma3.feed_forward_length": 21504,
    "gemma3.attention.head_count": heads,
    "gemma3.attention.head_count_kv": heads // 2,
    "gemma3.attention.key_length": 128 if layers == 62 else 256,
    "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
    "gemma3.attention.sliding_window": 1024,
  }
  config = gguf_config.read(metadata, 262144, (), {})
  assert config.attention_scale == pytest.approx(scale)
  assert config.windows[:6] == (*5 * [1024], 0)


@pytest.mark.parametrize(
  "architecture, changes, expected",
  [
    # Granite without a factor of its own has the usual one.
    ("granite", {"logit_scale": 8.0}, {"attention_scale": 0.25}),
    ("granite", {"attention.scale": 0.5}, {"attention_scale": 0.5}),
    # Phi-4 has a window of 0, and Phi-3-mini one in every layer.
    ("phi3", {"attention.sliding_window": 0}, {"windows": ()}),
    ("phi3", {"attention.sliding_window": 9}, {"windows": (9,) * 4}),
    ("phi3", {"rope.dimension_count": 12}, {"rotary_size": 12}),
    ("smollm3", {}, {"rotated": (True, True, True, False)}),
    ("olmo2", {}, {"qk_norm": False, "joint_qk_norm": True}),
  ],
)
def test_what_files_of_a_family_do_not_say(architecture, changes, expected):
  """Published files have no head size, because it is D / H."""
  shape = {
    "block_count": 4,
    "context_length": 64,
    "embedding_length": 64,
    "feed_forward_length": 32,
    "attention.head_count": 4,
    "attention.layer_norm_rms_epsilon": 1e-6,
  }
  metadata = {f"{architecture}.{k}": v for k, v in (shape | changes).items()}
  metadata["general.architecture"] = architecture
  is_olmo = architecture == "olmo2"
  norms = ["model.layers.0.self_attn.q_norm.weight"] if is_olmo else []
  config = gguf_config.read(metadata, 99, norms, {})
  assert {key: getattr(config, key) for key in expected} == expected


@pytest.mark.parametrize(
  "key, value",
  [("tokenizer.ggml.model", "bert"), ("tokenizer.ggml.pre", "tekken")],
)
def test_unknown_tokenizer_is_refused(key, value):
  metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}
  with pytest.raises(ValueError, match=f"{key}='{value}': expected"):
    gguf_tokenizer.from_metadata(metadata | {key: value})


def test_a_file_is_read_once_until_it_changes(
  tmp_path, vocabulary, monkeypatch
):
  """A start resolves its model twice, and a large vocabulary takes seconds."""
  path, opened = tmp_path / "m.gguf", []
  make = gguf_io.GGUFModel
  monkeypatch.setattr(
    gguf_io, "GGUFModel", lambda path: opened.append(path) or make(path)
  )
  write_gguf(path, "llama", gguf.GGMLQuantizationType.F32, vocabulary)
  first, again = load.resolve(str(path), ""), load.resolve(str(path), "")
  assert first.config == again.config and len(opened) == 1
  write_gguf(path, "qwen2", gguf.GGMLQuantizationType.F32, vocabulary)
  assert load.resolve(str(path), "").config.qkv_bias and len(opened) == 2
