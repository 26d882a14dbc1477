"""Phi-3 and Phi-4-mini: joined tensors, partial rotation, LongRoPE."""

from typing import Any

from azr_jax.models.config import LongRopeScaling, ModelConfig
from azr_jax.models.families import family, mistral, ropes
from azr_jax.models.families.fields import ConfigFields, unsupported

_FRACTION, _ORIGINAL = (
  "partial_rotary_factor",
  "original_max_position_embeddings",
)


def read(fields: ConfigFields) -> ModelConfig:
  """Reads the fields of config.json."""
  fields.require(
    hidden_act="silu",
    attention_bias=False,
    mlp_bias=False,
    lm_head_bias=False,
    # Dropout, which we do not train with.
    **{"embd_pdrop": 0.0, "resid_pdrop": 0.0},
    # Settings of the published code, which do nothing at these values.
    **{"full_attn_mod": 1, "interpolate_factor": 1},
  )
  # Published models bring code that transformers has had since 4.41.
  fields.ignore("auto_map")
  rope = _read_rope(fields)
  shape = family.read_shape(fields, rope)
  rotary_size = int(shape["head_size"] * rope.fraction)
  scaling = rope.scaling
  if isinstance(scaling, LongRopeScaling):
    for key, factors in (
      ("short_factor", scaling.short_factors),
      ("long_factor", scaling.long_factors),
    ):
      if len(factors) != rotary_size // 2:
        raise unsupported(key, factors, f"{rotary_size // 2} numbers")
  return ModelConfig(
    family="phi3",
    rotary_size=None if rotary_size == shape["head_size"] else rotary_size,
    windows=mistral.read_window(fields, shape),
    **shape,
  )


def _read_rope(fields: ConfigFields) -> ropes.Rope:
  """Reads the rotary parameters, which also depend on two lengths."""
  given = fields.take(ropes.NEW) or fields.take(ropes.OLD) or {}
  fields.ignore(ropes.NEW, ropes.OLD)
  if not isinstance(given, dict):
    raise unsupported(ropes.OLD, given, "an object")
  inner = dict(given)
  longest = fields.size("max_position_embeddings")
  original = fields.size(_ORIGINAL, inner.get(_ORIGINAL) or longest)
  fraction = fields.take(_FRACTION)
  if fraction is not None:
    inner.setdefault(_FRACTION, fraction)
  kind = inner.pop("rope_type", inner.pop("type", "default"))
  # "su" is an old name of LongRoPE.
  inner["rope_type"] = kind = "longrope" if kind == "su" else kind
  inner.pop("type", None)
  inner.pop(_ORIGINAL, None)
  if kind == "longrope":
    inner |= {_ORIGINAL: original, "max_position_embeddings": longest}
  field = ropes.NEW if "rope_theta" in given else ropes.OLD
  theta = fields.take("rope_theta")
  return ropes.parse(field, inner, theta, 10000.0, ("default", "longrope"))


def write(config: ModelConfig) -> dict[str, Any]:
  """Returns the fields of config.json."""
  scaling, rotary = config.rope_scaling, config.rotary_size
  original = config.max_positions
  if isinstance(scaling, LongRopeScaling):
    original = scaling.original_max_position
  return mistral.write(config) | {
    _FRACTION: (rotary or config.head_size) / config.head_size,
    _ORIGINAL: original,
    # Otherwise transformers assumes an id that a small vocabulary lacks.
    "pad_token_id": None,
  }


FAMILY = family.Family(
  "phi3",
  "Phi3ForCausalLM",
  read,
  write,
  fused={
    "self_attn.qkv_proj": ("q", "k", "v"),
    "mlp.gate_up_proj": ("gate", "up"),
  },
)
