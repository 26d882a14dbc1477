"""Converts Hugging Face's `config.json` to `ModelConfig` and back.

Every field is used, ignored for a known reason, or rejected by name. Silently
dropping a field would load a different model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from azr_jax.config import user_files
from azr_jax.models.config import MAX_FLOAT, Llama3RopeScaling, ModelConfig

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
}
# Fields that this decoder does not read: labels, training settings, token ids
# (which the tokenizer's files have), and fields of sliding-window attention,
# which is active only by `use_sliding_window` or `layer_types`, both checked.
_IGNORED = {
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
  "_name_or_path",
  "_attn_implementation_autoset",
  "name_or_path",
  "return_dict",
  "output_hidden_states",
  "output_attentions",
  "chunk_size_feed_forward",
  "id2label",
  "label2id",
  "problem_type",
}
# Prefixes of fields that training tools add for themselves.
_TOOLS = ("unsloth_",)
# Fields of which this decoder implements a single value.
_REQUIRED: dict[str, str | bool | float] = {
  "hidden_act": "silu",
  # Qwen2 has biases in q, k and v, although its config lacks this field.
  "attention_bias": False,
  "mlp_bias": False,
  "use_sliding_window": False,
  "use_mrope": False,
  "rope_interleaved": False,
  "is_encoder_decoder": False,
  "partial_rotary_factor": 1.0,
}


# Upper limit of sizes; larger ones come from damaged files.
_MAX_SIZE = 1 << 31
_ORIGINAL_POSITIONS = "original_max_position_embeddings"


def _unsupported(key: str, value: object, expected: str) -> ValueError:
  """Returns the error for a value that the decoder does not implement."""
  return user_files.Refusal(f"{key}={value!r}: expected {expected}")


def _positive(key: str, value: Any) -> float:
  """Returns a field's value if it is a positive number."""
  if type(value) not in (int, float) or not 0 < value < MAX_FLOAT:
    raise _unsupported(key, value, "a positive number")
  return float(value)


def _size(key: str, value: Any) -> int:
  """Returns a field's value if it is a positive integer."""
  if type(value) is not int or not 0 < value < _MAX_SIZE:
    raise _unsupported(key, value, "a positive integer")
  return value


def _check_fields(config: Mapping[str, Any]) -> None:
  """Raises ValueError if a field or its value is not implemented."""
  model_type = config.get("model_type")
  if model_type not in MODEL_TYPES:
    raise _unsupported("model_type", model_type, f"one of {MODEL_TYPES}")
  for key, value in config.items():
    if key in _REQUIRED:
      if value not in (None, _REQUIRED[key]):
        raise _unsupported(key, value, repr(_REQUIRED[key]))
    elif key == "auto_map":
      raise _unsupported(key, value, "no custom code, which is never run")
    elif key not in _USED | _IGNORED and not key.startswith(_TOOLS):
      raise _unsupported(key, value, "a field that this decoder supports")
  kinds = config.get("layer_types") or []
  if not isinstance(kinds, list) or any(k != "full_attention" for k in kinds):
    raise _unsupported("layer_types", kinds, "full_attention only")


def from_huggingface(config: Mapping[str, Any]) -> ModelConfig:
  """Returns the `ModelConfig` of the same model.

  Args:
    config: the object in config.json.

  Raises:
    ValueError: a field is unknown, or its value is not implemented; the message
      names field, value and what was expected.
  """
  _check_fields(config)
  model_type = config["model_type"]

  def size(key: str, default: int | None = None) -> int:
    """Returns a field's value if it is a size."""
    value = config.get(key)
    return _size(key, default if value is None else value)

  heads, hidden = size("num_attention_heads"), size("hidden_size")
  # Qwen3's head size is not always hidden_size / heads.
  head_size = None if model_type == "qwen3" else hidden // heads
  is_tied = config.get("tie_word_embeddings", False)
  if not isinstance(is_tied, bool):
    raise _unsupported("tie_word_embeddings", is_tied, "true or false")
  theta, scaling = _rope(config)
  return ModelConfig(
    vocab_size=size("vocab_size"),
    hidden_size=hidden,
    num_layers=size("num_hidden_layers"),
    num_heads=heads,
    num_kv_heads=size("num_key_value_heads", heads),
    head_size=size("head_dim", head_size),
    mlp_size=size("intermediate_size"),
    rope_theta=_positive("rope_theta", theta),
    rope_scaling=scaling,
    norm_eps=_positive("rms_norm_eps", config.get("rms_norm_eps")),
    tie_embeddings=is_tied,
    max_positions=size("max_position_embeddings"),
    qkv_bias=model_type == "qwen2",
    qk_norm=model_type == "qwen3",
  )


def _rope(
  config: Mapping[str, Any],
) -> tuple[float, Llama3RopeScaling | None]:
  """Returns the base of the rotary frequencies and their scaling.

  They are read from `rope_parameters`, or from the older `rope_theta` and
  `rope_scaling`.
  """
  new, old = config.get("rope_parameters"), config.get("rope_scaling")
  for field in ("rope_parameters", "rope_scaling"):
    if not isinstance(config.get(field), dict | None):
      raise _unsupported(field, config[field], "an object")
  if new and old and dict(old) != dict(new):
    raise _unsupported("rope_scaling", old, f"{new}, as in `rope_parameters`")
  field = "rope_parameters" if new else "rope_scaling"
  given = new or old or {}
  rope = dict(given)
  theta = _rope_theta(rope.pop("rope_theta", None), config.get("rope_theta"))
  old_type = rope.pop("type", "default")
  rope_type = rope.pop("rope_type", old_type)
  if rope.pop("partial_rotary_factor", 1.0) != 1.0:
    raise _unsupported(field, given, "partial_rotary_factor=1.0")
  if rope_type == "default":
    if rope:
      raise _unsupported(field, given, "no parameters for `default`")
    return theta, None
  if rope_type != "llama3":
    raise _unsupported(field, given, "rope_type `default` or `llama3`")
  try:
    scaling = Llama3RopeScaling(
      factor=_positive("factor", rope.pop("factor")),
      low_freq_factor=_positive("low_freq_factor", rope.pop("low_freq_factor")),
      high_freq_factor=_positive(
        "high_freq_factor", rope.pop("high_freq_factor")
      ),
      original_max_position=_size(
        _ORIGINAL_POSITIONS, rope.pop(_ORIGINAL_POSITIONS)
      ),
    )
  except KeyError as missing:
    raise _unsupported(field, given, f"{missing} for `llama3`") from None
  if rope:
    raise _unsupported(field, given, f"`llama3` without {sorted(rope)}")
  return theta, scaling


def _rope_theta(nested: float | None, top_level: float | None) -> float:
  """Returns the base from either field, by default 10000.

  All families share this default. Old files omit the field.
  """
  if None not in (nested, top_level) and nested != top_level:
    raise _unsupported(
      "rope_theta", top_level, f"{nested}, as in the rope parameters"
    )
  named = nested if top_level is None else top_level
  return 10000.0 if named is None else named


def to_huggingface(
  config: ModelConfig, dtype: str, eos_ids: Sequence[int] = ()
) -> dict[str, Any]:
  """Returns the object in config.json that `transformers` reads.

  Args:
    config: the model's config.
    dtype: dtype of the saved weights.
    eos_ids: EOS token ids.

  Raises:
    ValueError: no Hugging Face family has this shape.
  """
  if config.qk_norm and config.qkv_bias:
    raise ValueError(
      "qkv_bias=True, qk_norm=True: expected at most one to save as a "
      "Hugging Face model"
    )
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
    # Without these fields, `transformers` assumes ids 1 and 2 for llama.
    "bos_token_id": None,
    "eos_token_id": list(eos_ids) or None,
  }
