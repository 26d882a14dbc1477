"""Qwen2 and Qwen2.5: biases of q, k and v, which the config does not name."""

from azr_jax.models.config import ModelConfig
from azr_jax.models.families import family, llama, llama_cpp, ropes
from azr_jax.models.families.fields import ConfigFields


def read(fields: ConfigFields) -> ModelConfig:
  """Reads the fields of config.json."""
  family.require_llama_layers(fields)
  llama.require_no_windows(fields)
  shape = family.read_shape(fields, ropes.read(fields))
  return ModelConfig(family="qwen2", qkv_bias=True, **shape)


FAMILY = family.Family(
  "qwen2",
  "Qwen2ForCausalLM",
  read,
  family.write_shape,
  gguf=llama_cpp.Gguf("qwen2"),
)
