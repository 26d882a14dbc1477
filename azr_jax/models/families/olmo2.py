"""OLMo 2: norms after attention and MLP, and of all query or key heads."""

from azr_jax.models.config import ModelConfig
from azr_jax.models.families import family, llama_cpp, ropes
from azr_jax.models.families.fields import ConfigFields

MODULES = {
  "attention_post_norm": "post_attention_layernorm",
  "mlp_post_norm": "post_feedforward_layernorm",
}


def read(fields: ConfigFields) -> ModelConfig:
  """Reads the fields of config.json."""
  family.require_llama_layers(fields)
  return ModelConfig(
    family="olmo2",
    joint_qk_norm=True,
    norm_before=False,
    norm_after=True,
    **family.read_shape(fields, ropes.read(fields)),
  )


def _written_in_gguf(config: ModelConfig) -> dict[str, int | float]:
  """Checks what llama.cpp takes for granted."""
  llama_cpp.require_whole_heads(config)
  if config.tie_embeddings:
    raise ValueError(
      "tie_embeddings=True: expected False to save as GGUF, because llama.cpp "
      "has no tied OLMo 2"
    )
  return {}


FAMILY = family.Family(
  "olmo2",
  "Olmo2ForCausalLM",
  read,
  family.write_shape,
  MODULES,
  gguf=llama_cpp.Gguf("olmo2", written=_written_in_gguf),
)
