"""Qwen3: a norm of each query and key head, and heads of any size."""

from azr_jax.models.config import ModelConfig
from azr_jax.models.families import family, llama, llama_cpp, ropes
from azr_jax.models.families.fields import ConfigFields


def read(fields: ConfigFields) -> ModelConfig:
  """Reads the fields of config.json."""
  family.require_llama_layers(fields)
  llama.require_no_windows(fields)
  shape = family.read_shape(fields, ropes.read(fields), named_head_size=True)
  return ModelConfig(family="qwen3", qk_norm=True, **shape)


FAMILY = family.Family(
  "qwen3",
  "Qwen3ForCausalLM",
  read,
  family.write_shape,
  gguf=llama_cpp.Gguf("qwen3"),
)
