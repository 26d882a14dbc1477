"""Gemma 3, its text decoder alone.

Norms before and after attention and MLP, with 1 added to their scales; norms of
query and key heads; sliding windows with their own rotary base in five of six
layers; GELU; scaled embeddings.
"""

import math
from collections.abc import Mapping
from typing import Any

from azr_jax.models.config import GELU_TANH, ModelConfig
from azr_jax.models.families import family, llama_cpp, olmo3, ropes
from azr_jax.models.families.fields import FULL, SLIDING, ConfigFields

_THETA, _LOCAL_THETA = 1_000_000.0, 10_000.0


def read(fields: ConfigFields) -> ModelConfig:
  """Reads the fields of config.json."""
  fields.require(
    hidden_activation="gelu_pytorch_tanh",
    hidden_act="gelu_pytorch_tanh",
    attention_bias=False,
    attn_logit_softcapping=None,
    final_logit_softcapping=None,
    use_bidirectional_attention=False,
  )
  # How transformers lays out its cache.
  fields.ignore("cache_implementation")
  rope, local_theta = ropes.read_by_kind(
    fields, _THETA, _LOCAL_THETA, ("default", "linear")
  )
  # Gemma ties its embeddings unless the config says otherwise.
  tie = fields.flag("tie_word_embeddings", default=True)
  shape = family.read_shape(fields, rope, named_head_size=True)
  period = fields.size("_sliding_window_pattern", 6)
  period = fields.size("sliding_window_pattern", period)
  usual = [
    SLIDING if (layer + 1) % period else FULL
    for layer in range(shape["num_layers"])
  ]
  return ModelConfig(
    family="gemma3_text",
    qk_norm=True,
    norm_after=True,
    norm_offset=True,
    activation=GELU_TANH,
    embedding_scale=math.sqrt(shape["hidden_size"]),
    attention_scale=fields.positive("query_pre_attn_scalar", 256) ** -0.5,
    windows=fields.windows(usual, None),
    local_rope_theta=local_theta,
    **shape | {"tie_embeddings": tie},
  )


def write(config: ModelConfig) -> dict[str, Any]:
  """Returns the fields of config.json."""
  scale = config.attention_scale or config.head_size**-0.5
  scalar = scale**-2
  # transformers takes integers alone, and all published models have one.
  is_whole = math.isclose(scalar, round(scalar))
  fields = olmo3.write(config)
  del fields["hidden_act"]
  return fields | {
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": round(scalar) if is_whole else scalar,
  }


def _implied_in_gguf(
  fields: Mapping[str, Any], _: llama_cpp.Factors
) -> dict[str, Any]:
  """Returns the divisor of attention scores, which GGUF files lack.

  llama.cpp tells the 27B model, whose divisor is unusual, by its layers.
  """
  if fields["num_hidden_layers"] == 62:
    size = fields["hidden_size"] // fields["num_attention_heads"]
    return {"query_pre_attn_scalar": size}
  return {"query_pre_attn_scalar": fields["head_dim"]}


def _written_in_gguf(config: ModelConfig) -> dict[str, int | float]:
  """Returns the metadata that differs from Llama's."""
  local = config.local_rope_theta
  return {
    # Without windows, any number is refused as another decoder.
    "attention.sliding_window": max(config.windows, default=1),
    "rope.freq_base_swa": config.rope_theta if local is None else local,
  }


FAMILY = family.Family(
  "gemma3_text",
  "Gemma3ForCausalLM",
  read,
  write,
  modules={
    "attention_post_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
  },
  gguf=llama_cpp.Gguf(
    "gemma3",
    {
      "attention.sliding_window": "sliding_window",
      "attention.sliding_window_pattern": "sliding_window_pattern",
      "rope.freq_base_swa": "rope_local_base_freq",
    },
    _implied_in_gguf,
    _written_in_gguf,
  ),
)
