"""Phi-3 and Phi-4-mini: joined tensors, partial rotation, LongRoPE."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from azr_jax.models.config import LongRopeScaling, ModelConfig
from azr_jax.models.families import family, llama_cpp, mistral, ropes
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


def _implied_in_gguf(
  fields: Mapping[str, Any], factors: llama_cpp.Factors
) -> dict[str, Any]:
  """Returns the rotary parameters, and null for a window of 0.

  The fields have the number of rotated channels as their fraction, and the
  factor of queries and keys as the object with LongRoPE's parameters.
  """
  rotated = fields.get(_FRACTION, fields["head_dim"])
  scaling = None
  if factors:
    scaling = {"rope_type": "longrope"} | {
      key: [float(str(x)) for x in factors[name]]
      for name, key in _FACTORS.items()
    }
    scaling["attention_factor"] = fields.get(ropes.OLD, 1.0)
  return {
    _FRACTION: rotated / fields["head_dim"],
    ropes.OLD: scaling,
    "sliding_window": fields.get("sliding_window") or None,
  }


def _written_in_gguf(config: ModelConfig) -> dict[str, int | float]:
  """Returns the metadata that differs from Llama's."""
  llama_cpp.require_whole_heads(config)
  scaling = config.rope_scaling
  written: dict[str, int | float] = {
    "rope.dimension_count": config.rotary_size or config.head_size,
    # llama.cpp has Phi without its windows, so that others are refused.
    "attention.sliding_window": 0,
    "rope.scaling.original_context_length": config.max_positions,
  }
  if not isinstance(scaling, LongRopeScaling):
    return written
  return written | {
    "rope.scaling.original_context_length": scaling.original_max_position,
    "rope.scaling.attn_factor": scaling.attention_factor,
  }


def _scaled_in_gguf(config: ModelConfig) -> llama_cpp.Factors:
  """Returns LongRoPE's divisors."""
  fields = ropes.write(config.rope_scaling) or {}
  return {
    name: np.asarray(fields[key], np.float32)
    for name, key in _FACTORS.items()
    if key in fields
  }


# Tensor of GGUF files -> its field in config.json.
_FACTORS = {
  f"rope_factors_{kind}.weight": f"{kind}_factor" for kind in ("short", "long")
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
  gguf=llama_cpp.Gguf(
    "phi3",
    {
      "attention.sliding_window": "sliding_window",
      "rope.dimension_count": _FRACTION,
      "rope.scaling.original_context_length": _ORIGINAL,
      "rope.scaling.attn_factor": ropes.OLD,
    },
    _implied_in_gguf,
    _written_in_gguf,
    factors=tuple(_FACTORS),
    scaled=_scaled_in_gguf,
  ),
)
