"""OLMo 2: norms after attention and MLP, and of all query or key heads."""

from azr_jax.models.config import ModelConfig
from azr_jax.models.families import family, ropes
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


FAMILY = family.Family(
  "olmo2", "Olmo2ForCausalLM", read, family.write_shape, MODULES
)
