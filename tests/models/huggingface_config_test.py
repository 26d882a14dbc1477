"""Every config field is used, ignored for a reason, or rejected by name."""

import dataclasses

import jax
import pytest

from azr_jax.models import huggingface_config as hf
from azr_jax.models import transformer
from azr_jax.models.presets import PRESETS, parameter_count

BASE = hf.to_huggingface(PRESETS["smollm2-135m"], "float32")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_round_trip(name):
  config = PRESETS[name]
  assert hf.from_huggingface(hf.to_huggingface(config, "float32")) == config


@pytest.mark.parametrize(
  "field, value",
  [
    ("model_type", "gpt2"),
    ("hidden_act", "gelu"),
    ("mlp_bias", True),
    ("attention_bias", True),
    ("use_sliding_window", True),
    ("layer_types", ["full_attention", "sliding_attention"]),
    ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
    ("rope_scaling", {"rope_type": "llama3", "factor": 4.0}),
    ("rope_scaling", {"type": "linear", "factor": 2.0}),
    ("rope_scaling", {"rope_type": "default", "mrope_section": [1, 2]}),
    ("rope_parameters", {"rope_type": "dynamic", "rope_theta": 1e5}),
    ("rope_parameters", {"full_attention": {"rope_type": "default"}}),
    ("rope_parameters", {"rope_theta": 1e5, "partial_rotary_factor": 0.5}),
    ("use_mrope", True),
    ("rope_interleaved", True),
    ("quantization_config", {"quant_method": "gptq"}),
    ("rms_norm_eps", None),
    ("vocab_size", None),
    ("auto_map", {"AutoConfig": "own.Own"}),
    ("a_field_of_tomorrow", 1),
  ],
)
def test_refusal_names_field_and_value(field, value):
  with pytest.raises(ValueError, match="expected") as refusal:
    hf.from_huggingface(BASE | {field: value})
  assert f"{field}={value!r}: expected" in str(refusal.value)


def test_fields_of_a_training_tool_are_ignored():
  tool = {"unsloth_fixed": True, "unsloth_version": "2026.1.1"}
  assert hf.from_huggingface(BASE | tool) == hf.from_huggingface(BASE)


def test_old_and_new_rope_fields_must_agree():
  config = BASE | {
    "rope_parameters": {"rope_type": "default", "rope_theta": 5.0},
    "rope_scaling": {"rope_type": "llama3", "factor": 4.0},
  }
  with pytest.raises(ValueError, match="rope_scaling.*expected"):
    hf.from_huggingface(config)


def test_two_bases_of_the_frequencies_must_agree():
  nested = {"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}}
  assert hf.from_huggingface(BASE | nested | {"rope_theta": 5.0})
  with pytest.raises(ValueError, match="rope_theta=6.0: expected 5.0"):
    hf.from_huggingface(BASE | nested | {"rope_theta": 6.0})


def test_qwen3_must_say_its_head_size():
  config = hf.to_huggingface(PRESETS["qwen3-0.6b"], "float32")
  del config["head_dim"]
  with pytest.raises(ValueError, match="head_dim=None: expected"):
    hf.from_huggingface(config)


def test_no_family_has_both_biases_and_norms():
  both = dataclasses.replace(PRESETS["qwen3-0.6b"], qkv_bias=True)
  with pytest.raises(ValueError, match="qkv_bias"):
    hf.to_huggingface(both, "float32")


def test_a_published_config_reads_as_its_preset():
  """Reads all fields of Qwen/Qwen2.5-0.5B's config.json."""
  published = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "hidden_size": 896,
    "initializer_range": 0.02,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1",
    "use_cache": True,
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
  }
  assert hf.from_huggingface(published) == PRESETS["qwen2.5-0.5b"]


def test_the_published_config_of_gpt_oss_reads_as_its_preset():
  """Reads all fields of openai/gpt-oss-20b's config.json."""
  published = {
    "architectures": ["GptOssForCausalLM"],
    "attention_bias": True,
    "attention_dropout": 0.0,
    "eos_token_id": 200002,
    "experts_per_token": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2880,
    "initial_context_length": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "model_type": "gpt_oss",
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "output_router_logits": False,
    "pad_token_id": 199999,
    "quantization_config": {
      "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
      "quant_method": "mxfp4",
    },
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
      "beta_fast": 32.0,
      "beta_slow": 1.0,
      "factor": 32.0,
      "original_max_position_embeddings": 4096,
      "rope_type": "yarn",
      "truncate": False,
    },
    "rope_theta": 150000,
    "router_aux_loss_coef": 0.9,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "transformers_version": "4.57.0",
    "use_cache": True,
    "vocab_size": 201088,
  }
  assert hf.from_huggingface(published) == PRESETS["gpt-oss-20b"]


def test_new_style_rope_parameters():
  config = {k: v for k, v in BASE.items() if not k.startswith("rope_")}
  config["rope_parameters"] = {"rope_type": "default", "rope_theta": 5.0}
  assert hf.from_huggingface(config).rope_theta == 5.0


# Parameter counts from the model cards and checkpoint indexes.
_QWEN25_COUNTS = {
  "0.5b": 494_032_768,
  "1.5b": 1_543_714_304,
  "3b": 3_085_938_688,
  "7b": 7_615_616_512,
  "14b": 14_770_033_664,
  "32b": 32_763_876_352,
}


@pytest.mark.parametrize(
  "name, count",
  [
    ("smollm2-135m", 134_515_008),
    *((f"qwen2.5-{size}", n) for size, n in _QWEN25_COUNTS.items()),
    *((f"qwen2.5-coder-{size}", n) for size, n in _QWEN25_COUNTS.items()),
    ("llama-3.1-8b", 8_030_261_248),
    ("qwen3-0.6b", 596_049_920),
    ("qwen3-8b", 8_190_735_360),
    ("gpt-oss-20b", 20_914_757_184),
  ],
)
def test_published_parameter_counts(name, count):
  assert parameter_count(PRESETS[name]) == count


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_count_is_that_of_the_parameters(name):
  model = transformer.Transformer(PRESETS[name])
  shapes = jax.tree.leaves(transformer.abstract_params(model))
  assert parameter_count(PRESETS[name]) == sum(x.size for x in shapes)


def test_tiny_is_within_its_budget():
  assert parameter_count(PRESETS["azr-tiny"]) <= 4_000_000
