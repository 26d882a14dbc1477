"""Granite 3: Llama's layers with four constants."""

from typing import Any

from azr_jax.models.config import ModelConfig
from azr_jax.models.families import family, ropes
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


FAMILY = family.Family("granite", "GraniteForCausalLM", read, write)
