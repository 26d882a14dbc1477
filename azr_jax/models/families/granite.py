"""Granite 3: Llama's layers with four constants."""

from collections.abc import Mapping
from typing import Any

from azr_jax.models.config import ModelConfig
from azr_jax.models.families import family, llama_cpp, ropes
from azr_jax.models.families.fields import ConfigFields


def read(fields: ConfigFields) -> ModelConfig:
  """Reads the fields of config.json."""
  family.require_llama_layers(fields)
  return ModelConfig(
    family="granite",
    embedding_scale=fields.positive("embedding_multiplier", 1.0),
    attention_scale=fields.positive("attention_multiplier", 1.0),
    residual_scale=fields.positive("residual_multiplier", 1.0),
    logits_scale=fields.positive("logits_scaling", 1.0),
    **family.read_shape(fields, ropes.read(fields)),
  )


def write(config: ModelConfig) -> dict[str, Any]:
  """Returns the fields of config.json."""
  return family.write_shape(config) | {
    "embedding_multiplier": config.embedding_scale,
    "attention_multiplier": config.attention_scale,
    "residual_multiplier": config.residual_scale,
    "logits_scaling": config.logits_scale,
  }


def _implied_in_gguf(
  fields: Mapping[str, Any], _: llama_cpp.Factors
) -> dict[str, Any]:
  """Returns the factor of attention scores, which is 1 in transformers.

  In llama.cpp, 0 and a missing factor stand for the usual one.
  """
  usual = fields["head_dim"] ** -0.5
  return {"attention_multiplier": fields.get("attention_multiplier") or usual}


FAMILY = family.Family(
  "granite",
  "GraniteForCausalLM",
  read,
  write,
  gguf=llama_cpp.Gguf(
    "granite",
    {
      "embedding_scale": "embedding_multiplier",
      "attention.scale": "attention_multiplier",
      "residual_scale": "residual_multiplier",
      "logit_scale": "logits_scaling",
    },
    _implied_in_gguf,
    pairs_channels=True,
    scaled=llama_cpp.llama_3_factors,
  ),
)
