"""Mistral: Llama's layers, in version 0.1 with a sliding window in each."""

from typing import Any

from azr_jax.models.config import ModelConfig
from azr_jax.models.families import family, llama, ropes
from azr_jax.models.families.fields import SLIDING, ConfigFields


def read(fields: ConfigFields) -> ModelConfig:
  """Reads the fields of config.json."""
  family.require_llama_layers(fields)
  shape = family.read_shape(fields, ropes.read(fields))
  return ModelConfig(
    family="mistral", windows=read_window(fields, shape), **shape
  )


def read_window(fields: ConfigFields, shape: dict[str, Any]) -> tuple[int, ...]:
  """Returns the window of each layer: the same in all, if there is one.

  Args:
    fields: the fields of a config.json.
    shape: from `family.read_shape`.
  """
  if fields.take("sliding_window") is None:
    return ()
  kinds = [SLIDING] * shape["num_layers"]
  return fields.windows(kinds, shape["max_positions"])


def write(config: ModelConfig) -> dict[str, Any]:
  """Returns the fields of config.json."""
  (window,) = config.distinct_windows[:1]
  return family.write_shape(config) | {"sliding_window": window or None}


FAMILY = family.Family(
  "mistral", "MistralForCausalLM", read, write, gguf=llama.GGUF
)
