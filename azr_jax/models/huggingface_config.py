"""Hugging Face `config.json` to `ModelConfig` and back.

Every field is used, known to be harmless, or refused by name: a field that
is silently dropped makes a different model.
"""

from collections.abc import Mapping
from typing import Any

from azr_jax.models.config import Llama3RopeScaling, ModelConfig

MODEL_TYPES = ("llama", "qwen2", "qwen3")
_USED = {
  "model_type",
  "vocab_size",
  "hidden_size",
  "num_hidden_layers",
  "num_attention_heads",
  "num_key_value_heads",
  "head_dim",
  "intermediate_size",
  "rope_theta",
  "rope_scaling",
  "rope_parameters",
  "rms_norm_eps",
  "tie_word_embeddings",
  "max_position_embeddings",
  "attention_bias",
}
# Fields that change nothing in the forward pass of these models.
_HARMLESS = {
  "architectures",
  "torch_dtype",
  "dtype",
  "transformers_version",
  "use_cache",
  "initializer_range",
  "attention_dropout",
  "bos_token_id",
  "eos_token_id",
  "pad_token_id",
  "unk_token_id",
  "pretraining_tp",
  "max_window_layers",
  "sliding_window",
  "layer_types",
  "is_llama_config",
  "transformers.js_config",
  "rope_interleaved",
  "_name_or_path",
  "_attn_implementation_autoset",
  "name_or_path",
  "return_dict",
  "output_hidden_states",
  "output_attentions",
  "chunk_size_feed_forward",
  "is_encoder_decoder",
  "id2label",
  "label2id",
  "problem_type",
}
# Fields with the one value that this decoder implements.
_REQUIRED: dict[str, Any] = {
  "hidden_act": "silu",
  "mlp_bias": False,
  "use_sliding_window": False,
  "partial_rotary_factor": 1.0,
}


def _refuse(key: str, value: Any, expected: str) -> ValueError:
  return ValueError(f"config.json {key}={value!r}: expected {expected}")


def from_huggingface(config: Mapping[str, Any]) -> ModelConfig:
  """Reads a Hugging Face config.

  Raises:
    ValueError: a field is unknown or asks for what the decoder lacks; the
      message names field, value and what was expected.
  """
  model_type = config.get("model_type")
  if model_type not in MODEL_TYPES:
    raise _refuse("model_type", model_type, f"one of {MODEL_TYPES}")
  for key, value in config.items():
    if key in _REQUIRED:
      if value not in (None, _REQUIRED[key]):
        raise _refuse(key, value, repr(_REQUIRED[key]))
    elif key not in _USED | _HARMLESS:
      raise _refuse(key, value, "a field that this decoder knows")
  if any(kind != "full_attention" for kind in config.get("layer_types") or ()):
    raise _refuse("layer_types", config["layer_types"], "full_attention only")
  bias = config.get("attention_bias", False)
  if bias:
    raise _refuse("attention_bias", bias, "False (Qwen2's biases are implied)")
  heads = config["num_attention_heads"]
  theta, scaling = _rope(config)
  return ModelConfig(
    vocab_size=config["vocab_size"],
    hidden_size=config["hidden_size"],
    num_layers=config["num_hidden_layers"],
    num_heads=heads,
    num_kv_heads=config.get("num_key_value_heads") or heads,
    head_size=config.get("head_dim") or config["hidden_size"] // heads,
    mlp_size=config["intermediate_size"],
    rope_theta=theta,
    rope_scaling=scaling,
    norm_eps=config["rms_norm_eps"],
    tie_embeddings=config.get("tie_word_embeddings", False),
    max_positions=config["max_position_embeddings"],
    qkv_bias=model_type == "qwen2",
    qk_norm=model_type == "qwen3",
  )


def _rope(
  config: Mapping[str, Any],
) -> tuple[float, Llama3RopeScaling | None]:
  """Reads `rope_parameters`, or the older `rope_theta` + `rope_scaling`."""
  rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
  theta = rope.pop("rope_theta", config.get("rope_theta", 10000.0))
  kind = rope.pop("rope_type", rope.pop("type", "default"))
  rope.pop("type", None)
  if rope.pop("partial_rotary_factor", 1.0) != 1.0:
    raise _refuse("rope_parameters", rope, "a full rotary embedding")
  if kind == "default":
    if rope:
      raise _refuse("rope_scaling", rope, "no parameters for `default`")
    return theta, None
  if kind != "llama3":
    raise _refuse("rope_type", kind, "`default` or `llama3`")
  try:
    scaling = Llama3RopeScaling(
      factor=rope.pop("factor"),
      low_freq_factor=rope.pop("low_freq_factor"),
      high_freq_factor=rope.pop("high_freq_factor"),
      original_max_position=rope.pop("original_max_position_embeddings"),
    )
  except KeyError as missing:
    raise _refuse("rope_scaling", rope, f"{missing} for `llama3`") from None
  if rope:
    raise _refuse("rope_scaling", rope, "no further `llama3` parameters")
  return theta, scaling


def to_huggingface(config: ModelConfig, dtype: str) -> dict[str, Any]:
  """Writes the config.json that `transformers` reads."""
  if config.qk_norm:
    model_type, name = "qwen3", "Qwen3ForCausalLM"
  elif config.qkv_bias:
    model_type, name = "qwen2", "Qwen2ForCausalLM"
  else:
    model_type, name = "llama", "LlamaForCausalLM"
  rope_scaling = None
  if config.rope_scaling is not None:
    scaling = config.rope_scaling
    rope_scaling = {
      "rope_type": "llama3",
      "factor": scaling.factor,
      "low_freq_factor": scaling.low_freq_factor,
      "high_freq_factor": scaling.high_freq_factor,
      "original_max_position_embeddings": scaling.original_max_position,
    }
  return {
    "architectures": [name],
    "model_type": model_type,
    "vocab_size": config.vocab_size,
    "hidden_size": config.hidden_size,
    "num_hidden_layers": config.num_layers,
    "num_attention_heads": config.num_heads,
    "num_key_value_heads": config.num_kv_heads,
    "head_dim": config.head_size,
    "intermediate_size": config.mlp_size,
    "rope_theta": config.rope_theta,
    "rope_scaling": rope_scaling,
    "rms_norm_eps": config.norm_eps,
    "tie_word_embeddings": config.tie_embeddings,
    "max_position_embeddings": config.max_positions,
    "hidden_act": "silu",
    "torch_dtype": dtype,
  }
