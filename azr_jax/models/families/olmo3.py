"""OLMo 3: OLMo 2 with sliding windows in three of four layers.

Only layers without a window have scaled rotary frequencies.
"""

from typing import Any

from azr_jax.models.config import ModelConfig
from azr_jax.models.families import family, olmo2, ropes
from azr_jax.models.families.fields import FULL, SLIDING, ConfigFields

_THETA = 500_000.0


def read(fields: ConfigFields) -> ModelConfig:
  """Reads the fields of config.json."""
  family.require_llama_layers(fields)
  fields.require(use_sliding_window=True)
  rope, local_theta = ropes.read_by_kind(fields, _THETA, None, ropes.USUAL)
  shape = family.read_shape(fields, rope)
  usual = [
    FULL if (layer + 1) % 4 == 0 else SLIDING
    for layer in range(shape["num_layers"])
  ]
  is_local = rope.scaling is not None or local_theta != rope.theta
  limit = None if is_local else shape["max_positions"]
  return ModelConfig(
    family="olmo3",
    joint_qk_norm=True,
    norm_before=False,
    norm_after=True,
    windows=fields.windows(usual, limit),
    local_rope_theta=local_theta if is_local else None,
    **shape,
  )


def write(config: ModelConfig) -> dict[str, Any]:
  """Returns the fields of config.json."""
  windows = config.windows or (0,) * config.num_layers
  fields = family.write_shape(config)
  del fields["rope_theta"], fields["rope_scaling"]
  return fields | {
    "rope_parameters": ropes.write_by_kind(config),
    "sliding_window": max(windows) or None,
    "layer_types": [SLIDING if window else FULL for window in windows],
  }


FAMILY = family.Family("olmo3", "Olmo3ForCausalLM", read, write, olmo2.MODULES)
