"""SmolLM3: Llama's layers, of which every fourth does not rotate."""

from typing import Any

from azr_jax.models.config import ModelConfig
from azr_jax.models.families import family, llama, llama_cpp, ropes
from azr_jax.models.families.fields import ConfigFields, unsupported

_THETA = 2_000_000.0
_ROTATED, _INTERVAL = "no_rope_layers", "no_rope_layer_interval"


def read(fields: ConfigFields) -> ModelConfig:
  """Reads the fields of config.json."""
  family.require_llama_layers(fields)
  llama.require_no_windows(fields)
  shape = family.read_shape(fields, ropes.read(fields, _THETA))
  count, interval = shape["num_layers"], fields.size(_INTERVAL, 4)
  usual = [int((layer + 1) % interval != 0) for layer in range(count)]
  # The field has 1 for a layer that rotates.
  rotated = fields.take(_ROTATED, usual)
  is_known = isinstance(rotated, list) and len(rotated) >= count
  if not is_known or not {*rotated} <= {0, 1}:
    raise unsupported(_ROTATED, rotated, f"{count} values of 0 or 1")
  rotated = tuple(bool(value) for value in rotated[:count])
  return ModelConfig(
    family="smollm3", rotated=() if all(rotated) else rotated, **shape
  )


def write(config: ModelConfig) -> dict[str, Any]:
  """Returns the fields of config.json."""
  rotated = config.rotated or (True,) * config.num_layers
  return family.write_shape(config) | {
    _ROTATED: [int(x) for x in rotated],
    # Otherwise transformers assumes an id that a small vocabulary lacks.
    "pad_token_id": None,
  }


FAMILY = family.Family(
  "smollm3",
  "SmolLM3ForCausalLM",
  read,
  write,
  # llama.cpp, too, leaves out every fourth layer, whatever the file says.
  gguf=llama_cpp.Gguf("smollm3", pairs_channels=True),
)
