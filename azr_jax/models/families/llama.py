"""Llama 2 and 3, SmolLM2, and models with their layers."""

from azr_jax.models.config import ModelConfig
from azr_jax.models.families import family, llama_cpp, ropes
from azr_jax.models.families.fields import FULL, ConfigFields, unsupported


def read(fields: ConfigFields) -> ModelConfig:
  """Reads the fields of config.json."""
  family.require_llama_layers(fields)
  require_no_windows(fields)
  fields.ignore("is_llama_config")
  return ModelConfig(
    family="llama", **family.read_shape(fields, ropes.read(fields))
  )


def require_no_windows(fields: ConfigFields) -> None:
  """Checks that every token attends to all earlier ones.

  `sliding_window` has no effect without `use_sliding_window`.
  """
  fields.require(use_sliding_window=False, use_mrope=False)
  fields.ignore("max_window_layers", "sliding_window")
  kinds = fields.take("layer_types", [])
  if not isinstance(kinds, list) or any(kind != FULL for kind in kinds):
    raise unsupported("layer_types", kinds, f"{FULL} only")


GGUF = llama_cpp.Gguf(
  "llama", pairs_channels=True, scaled=llama_cpp.llama_3_factors
)
FAMILY = family.Family(
  "llama",
  "LlamaForCausalLM",
  read,
  family.write_shape,
  gguf=GGUF,
)
