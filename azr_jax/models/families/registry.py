"""All families, by the value of `model_type`."""

from collections.abc import Callable
from typing import Any

from azr_jax.models.config import ModelConfig
from azr_jax.models.families import (
  gemma3,
  gemma3_vision,
  gpt_oss,
  granite,
  llama,
  mistral,
  olmo2,
  olmo3,
  phi3,
  qwen2,
  qwen3,
  qwen3_moe,
  smollm3,
)
from azr_jax.models.families.family import Family
from azr_jax.models.families.fields import ConfigFields

FAMILIES: dict[str, Family] = {
  module.FAMILY.name: module.FAMILY
  for module in (
    *(llama, qwen2, qwen3, mistral, granite),
    *(smollm3, olmo2, olmo3, phi3, gemma3, qwen3_moe),
    gpt_oss,
  )
}

# `model_type` of a model with more than a text decoder -> returns the fields of
# the decoder's config.json.
WRAPPERS: dict[str, Callable[[ConfigFields], dict[str, Any]]] = {
  gemma3_vision.NAME: gemma3_vision.text_fields
}

# llama.cpp's architecture -> the family that reads it. Mistral's files are
# Llama's.
BY_ARCHITECTURE: dict[str, Family] = {
  family.gguf.architecture: family
  for family in reversed(FAMILIES.values())
  if family.gguf is not None
}


def of(config: ModelConfig) -> Family:
  """Returns the family of a decoder."""
  return FAMILIES[config.family]
